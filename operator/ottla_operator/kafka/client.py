"""The connection to a cluster, and error codes as exceptions."""

from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from ottla_broker.wire.client import Client, NoBrokersAvailable, parse_bootstrap_servers
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError, describe_os_error

T = TypeVar("T")

BROKER_TIMEOUT_S: Final = 10.0
"""Timeout of a request that is sent to each broker, so that a broker that hangs does not delay the
results of the others.
"""


class Unreachable(Exception):
    """No broker is reachable, or the broker that a request needs is not."""


class InvalidAddress(ValueError):
    """An address that is not host:port."""


class KafkaClient:
    """Sends requests to the brokers of a cluster. Raises Unreachable for connection errors, and
    KafkaError for a refused login, an id that no broker has (BROKER_NOT_AVAILABLE) and a request
    that the broker does not support (UNSUPPORTED_VERSION). Errors in responses are the caller's.

    Requests are kio's classes of any version. They are converted to a version that the broker
    speaks, and responses to the version of the request.
    """

    def __init__(self, client: Client, bootstrap: str) -> None:
        self._client = client
        self._bootstrap = bootstrap

    async def send(self, request: Any, *, broker: int | None = None) -> Any:
        """Sends to the broker with this id; to any broker if None."""
        return await self._await(self._client.send(request, broker=broker))

    async def send_to_controller(self, request: Any) -> Any:
        return await self._await(self._client.send_to_controller(request))

    async def send_to_coordinator(self, group: str, request: Any) -> Any:
        """Sends to the coordinator of a group of any kind."""
        return await self._await(self._client.send_to_coordinator(group, request))

    async def send_to_transaction_coordinator(self, transactional_id: str, request: Any) -> Any:
        """Sends to the coordinator of a transactional id."""
        return await self._await(self._client.send_to_transaction_coordinator(transactional_id, request))

    async def _await(self, response: Awaitable[Any]) -> Any:
        with _connection_errors(self._bootstrap):
            return await response


def raise_for_error(
    code: ErrorCode | int, message: str | None, subject: str, *, allow: Collection[ErrorCode] = ()
) -> None:
    """Raises what `find_error` returns."""
    if (error := find_error(code, message, subject, allow=allow)) is not None:
        raise error


def find_error(
    code: ErrorCode | int, message: str | None, subject: str, *, allow: Collection[ErrorCode] = ()
) -> KafkaError | None:
    """The error "subject: message"; None if the code is none or in `allow`."""
    if not code or (error := ErrorCode(code)) in allow:
        return None
    text = message or error_text(error)
    return KafkaError(error, text if text.startswith(subject) else f"{subject}: {text}")


async def none_on_error(work: Awaitable[T], *codes: ErrorCode) -> T | None:
    """The result of the work; None if it raises KafkaError with one of the codes."""
    try:
        return await work
    except KafkaError as error:
        if error.code in codes:
            return None
        raise


def error_text(code: ErrorCode) -> str:
    """Name of an error code as text: "not leader or follower"."""
    return code.name.replace("_", " ")


@asynccontextmanager
async def connect(
    bootstrap: str, timeout_s: float = 30.0, security: ClientSecurity = UNSECURED
) -> AsyncIterator[KafkaClient]:
    """Connects to a cluster by bootstrap addresses. Raises Unreachable, InvalidAddress, and
    KafkaError if the brokers refuse the login.
    """
    try:
        addresses = parse_bootstrap_servers(bootstrap)
    except ValueError as error:
        raise InvalidAddress(str(error)) from error
    client = Client(addresses, timeout_s=timeout_s, security=security)
    try:
        with _connection_errors(bootstrap):
            await client.metadata(())
        yield KafkaClient(client, bootstrap)
    finally:
        await client.close()


@contextmanager
def _connection_errors(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except NoBrokersAvailable as error:
        raise Unreachable(str(error)) from error
    except TimeoutError as error:
        raise Unreachable(f"{bootstrap}: request timed out") from error
    except OSError as error:
        raise Unreachable(f"{bootstrap}: {describe_os_error(error)}") from error
