"""The way to brokers: who is asked, how an answer's code becomes an error, and what it means when nobody answers."""

from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ottla_broker.wire.client import Client, NoBrokersAvailable, parse_bootstrap_servers
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError, describe_os_error


class Unreachable(Exception):
    """No broker answers at the addresses given."""


class InvalidAddress(ValueError):
    """An address that is not host:port."""


class KafkaClient:
    """Requests are kio's classes of any version; a broker that speaks another is asked in its own, and the answer comes back in the version asked."""

    def __init__(self, client: Client, bootstrap: str) -> None:
        self._client = client
        self._bootstrap = bootstrap

    async def ask(self, request: Any, *, broker: int | None = None) -> Any:
        """Asks the broker with this id; any broker when None. Unreachable, KafkaError."""
        return await self._told(self._client.send(request, broker=broker))

    async def ask_controller(self, request: Any) -> Any:
        return await self._told(self._client.send_to_controller(request))

    async def ask_coordinator(self, group: str, request: Any) -> Any:
        """Asks the broker that coordinates a consumer group."""
        return await self._told(self._client.send_to_coordinator(group, request))

    async def _told(self, asking: Awaitable[Any]) -> Any:
        with _reached(self._bootstrap):
            return await asking


def raise_for_error(
    code: ErrorCode | int, message: str | None, about: str, *, allow: Collection[ErrorCode] = ()
) -> None:
    """KafkaError with a sentence for people unless the code is none or one of `allow`."""
    if code and (found := ErrorCode(code)) not in allow:
        why = message or error_text(found)
        raise KafkaError(found, why if why.startswith(about) else f"{about}: {why}")


def error_text(code: ErrorCode) -> str:
    """An error code in words: `not leader or follower`."""
    return code.name.replace("_", " ")


@asynccontextmanager
async def connect(
    bootstrap: str, timeout_s: float = 30.0, secured: ClientSecurity = UNSECURED
) -> AsyncIterator[KafkaClient]:
    """A link to a cluster by the addresses of some of its brokers. Unreachable when none answers, BadAddress."""
    try:
        addresses = parse_bootstrap_servers(bootstrap)
    except ValueError as error:
        raise InvalidAddress(str(error)) from error
    client = Client(addresses, timeout_s=timeout_s, security=secured)
    link = KafkaClient(client, bootstrap)
    try:
        with _reached(bootstrap):
            await client.metadata(())
        yield link
    finally:
        await client.close()


@contextmanager
def _reached(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except NoBrokersAvailable as error:
        raise Unreachable(str(error)) from error
    except TimeoutError as error:
        raise Unreachable(f"the brokers at {bootstrap} did not answer in time") from error
    except OSError as error:
        raise Unreachable(f"{bootstrap}: {describe_os_error(error)}") from error
