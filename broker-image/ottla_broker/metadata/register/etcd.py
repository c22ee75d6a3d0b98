"""The register as one key in etcd, through its JSON gateway (https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/).

Compare-and-swap is a transaction on the key's mod_revision; a key that is not there has revision 0. The version of a value is that revision.
"""

import asyncio
import base64
from typing import Any

import aiohttp
import msgspec

from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue, VersionedValue

TIMEOUT_S = 5.0
NOT_THERE = "0"


class EtcdRegister:
    """`url`: http://host:port/key. One connection, made when it is first needed."""

    def __init__(self, url: str) -> None:
        scheme, separator, rest = url.partition("://")
        host, _, key = rest.partition("/")
        if not separator or not host or not key:
            raise RegisterError(f"register=etcd:{url}: that is no http://host:port/key")
        self._gateway = f"{scheme}://{host}/v3/kv"
        self._watching = f"{scheme}://{host}/v3/watch"
        self._key = _text(key.encode())
        self._session: aiohttp.ClientSession | None = None

    async def read(self) -> VersionedValue:
        answer = await self._post("range", {"key": self._key})
        try:
            return _seen(answer.get("kvs", []))
        except msgspec.MsgspecError as error:
            raise RegisterError(f"what etcd at {self._gateway} holds is no register: {error}") from error

    async def swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        answer = await self._post(
            "txn",
            {
                "compare": [
                    {"target": "MOD", "result": "EQUAL", "key": self._key, "mod_revision": seen.version or NOT_THERE}
                ],
                "success": [{"request_put": {"key": self._key, "value": _text(msgspec.json.encode(new))}}],
            },
        )
        if not answer.get("succeeded"):
            raise Conflict("the register was changed by another broker")
        return VersionedValue(new, str(answer["header"]["revision"]))

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        """Waits for a line that says that something happened, and reads then: what the line says may be old already."""
        wanted = {"key": self._key, "start_revision": str(int(seen.version or NOT_THERE) + 1)}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open_session().post(
                    self._watching,
                    json={"create_request": wanted},
                    timeout=aiohttp.ClientTimeout(sock_connect=TIMEOUT_S),
                ) as answer,
            ):
                async for line in answer.content:
                    said = msgspec.json.decode(line).get("result", {})
                    if said.get("events") or said.get("canceled"):  # canceled: what is asked for was compacted away
                        break
        except TimeoutError:
            pass
        except (aiohttp.ClientError, ValueError) as error:
            raise self._away(error) from error
        return await self.read()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        return self._session

    def _away(self, error: Exception) -> RegisterError:
        return RegisterError(f"etcd at {self._gateway} does not answer: {str(error) or type(error).__name__}")

    async def _post(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._open_session().post(f"{self._gateway}/{what}", json=body) as response:
                answer: dict[str, Any] = await response.json(content_type=None)
                if response.status != 200:
                    said = answer.get("message") or answer.get("error")
                    raise RegisterError(f"etcd at {self._gateway} says {response.status}: {said}")
                return answer
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._away(error) from error


def _seen(found: list[dict[str, Any]]) -> VersionedValue:
    if not found:
        return VersionedValue(None, NOT_THERE)
    value = msgspec.json.decode(base64.b64decode(found[0]["value"]), type=RegisterValue)
    return VersionedValue(value, str(found[0]["mod_revision"]))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
