"""The register as one `coordination.k8s.io/v1` Lease object (https://kubernetes.io/docs/concepts/architecture/leases/).

- The value is JSON in an annotation. The lease's own fields say the same to people and `kubectl`; nothing here reads them.
- Compare-and-swap is a merge patch that names the `metadata.resourceVersion` it was made for: the API server answers 409 when the object has
  another one. So labels, owner and whatever else the operator put there stay as they are.
- The operator makes the object; a Lease without the annotation is an empty register. Where there is none yet, the first swap makes it.
- A watch is one stream that is kept from call to call. It starts with the object as it is, so nothing is missed between two streams.
- Rights of a broker: get, watch and patch on this one Lease (and create on leases, where nobody makes it beforehand).
"""

import asyncio
import datetime
from typing import Any

import aiohttp
import msgspec

from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue, VersionedValue
from ottla_broker.metadata.register.api_server import ApiServer

ANNOTATION = "ottla.dev/register"
TIMEOUT_S = 5.0
# A stream whose other end vanished without a word looks like one without news; so none is believed for longer.
STREAM_S = 30
STREAM_GRACE_S = 5.0
PAUSE_BETWEEN_STREAMS_S = 0.1
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409
NOT_THERE = ""

Json = dict[str, Any]


class KubernetesRegister:
    """`where`: namespace/name of the Lease. One task may watch at a time; reads and swaps go on beside it."""

    def __init__(self, where: str, server: ApiServer) -> None:
        namespace, _, name = where.partition("/")
        if not namespace or not name or "/" in name:
            raise RegisterError(f"register=kubernetes:{where}: that is no NAMESPACE/NAME of a Lease")
        self._server = server
        self._where = where
        self._namespace = namespace
        self._name = name
        self._leases = f"{server.url}/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._session: aiohttp.ClientSession | None = None
        self._stream: _Stream | None = None
        self._shown = (
            0,
            VersionedValue(None, NOT_THERE),
        )  # by the stream, and its resource version, which a deletion has, too

    async def read(self) -> VersionedValue:
        status, answer = await self._ask("GET", f"{self._leases}/{self._name}")
        if status == NOT_FOUND:
            return VersionedValue(None, NOT_THERE)
        self._check("get", status, answer)
        return self._seen(answer)

    async def swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        metadata: Json = {"annotations": {ANNOTATION: msgspec.json.encode(new).decode()}}
        if seen.version == NOT_THERE:
            lease = {"metadata": metadata | {"name": self._name}, "spec": _spec(new)}
            status, answer = await self._ask("POST", self._leases, lease)
            if status == NOT_FOUND:
                raise RegisterError(f"there is no namespace {self._namespace} to make the Lease {self._where} in")
            self._check("create", status, answer)
            return self._seen(answer)
        change = {"metadata": metadata | {"resourceVersion": seen.version}, "spec": _spec(new)}
        status, answer = await self._ask("PATCH", f"{self._leases}/{self._name}", change)
        if status == NOT_FOUND:
            raise Conflict(f"Lease {self._where} was deleted")
        self._check("patch", status, answer)
        return self._seen(answer)

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if _is_news(self._shown, seen):
                        return self._shown[1]
                    await self._follow_stream()
        except TimeoutError:
            return await self.read()

    async def close(self) -> None:
        self._close_stream()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _follow_stream(self) -> None:
        """Waits for the next event of the stream, which is opened where there is none, or for the stream's end."""
        try:
            if self._stream is None:
                self._stream = await self._open_stream()
            event = await self._stream.event()
        except (aiohttp.ClientError, ValueError) as error:
            self._close_stream()
            raise self._away(error) from error
        if event is None:
            self._close_stream()
            await asyncio.sleep(PAUSE_BETWEEN_STREAMS_S)
        elif event["type"] == "ERROR":
            self._close_stream()
            self._check("watch", event["object"].get("code", 500), event["object"])
        else:
            lease = event["object"]
            shown = VersionedValue(None, NOT_THERE) if event["type"] == "DELETED" else self._seen(lease)
            self._shown = (int(lease["metadata"]["resourceVersion"]), shown)

    async def _open_stream(self) -> "_Stream":
        session = self._open_session()
        response = await session.get(
            self._leases,
            params={"watch": "true", "fieldSelector": f"metadata.name={self._name}", "timeoutSeconds": str(STREAM_S)},
            headers=self._server.headers(),
            ssl=self._server.trust(),
            server_hostname=self._server.server_name,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S),
        )
        if response.status != 200:
            async with response:
                self._check("watch", response.status, await response.json(content_type=None))
        return _Stream(response, asyncio.get_running_loop().time() + STREAM_S + STREAM_GRACE_S)

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        return self._session

    async def _ask(self, method: str, url: str, body: Json | None = None) -> tuple[int, Json]:
        headers = self._server.headers() | ({"Content-Type": _content(method)} if body is not None else {})
        data = msgspec.json.encode(body) if body is not None else None
        trust, name = self._server.trust(), self._server.server_name
        try:
            session = self._open_session()
            async with session.request(
                method, url, data=data, headers=headers, ssl=trust, server_hostname=name
            ) as response:
                return response.status, await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> RegisterError:
        return RegisterError(f"the API server at {self._server.url} does not answer: {error or type(error).__name__}")

    def _check(self, right: str, status: int, answer: Json) -> None:
        """Raises what the status means, if anything. `right`: the verb of Kubernetes that was used."""
        said = answer.get("message") or f"status {status}"
        if status == CONFLICT:
            raise Conflict(f"Lease {self._where} was changed by another broker")
        if status == UNAUTHORIZED:
            raise RegisterError(f"the API server at {self._server.url} does not know who asks: {said}")
        if status == FORBIDDEN:
            whose = f"leases in namespace {self._namespace}" if right == "create" else f"Lease {self._where}"
            raise RegisterError(f"the right to {right} {whose} (coordination.k8s.io) is missing, or not enough: {said}")
        if status >= 400:
            raise RegisterError(f"the API server at {self._server.url} refuses to {right} Lease {self._where}: {said}")

    def _seen(self, lease: Json) -> VersionedValue:
        metadata = lease["metadata"]
        text = (metadata.get("annotations") or {}).get(ANNOTATION)
        try:
            value = msgspec.json.decode(text, type=RegisterValue) if text else None
        except msgspec.MsgspecError as error:
            raise RegisterError(
                f"the annotation {ANNOTATION} of Lease {self._where} is no register: {error}"
            ) from error
        return VersionedValue(value, metadata["resourceVersion"])


class _Stream:
    """An open watch: one JSON object a line. Leaving a wait loses nothing of it. Whole within `until`, of the loop's time."""

    def __init__(self, response: aiohttp.ClientResponse, until: float) -> None:
        self._response = response
        self._until = until
        self._buffer = b""

    async def event(self) -> Json | None:
        """None at its end. aiohttp.ClientError when it breaks."""
        while b"\n" not in self._buffer:
            try:
                async with asyncio.timeout_at(self._until):
                    chunk = await self._response.content.readany()
            except TimeoutError:
                return None
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: Json = msgspec.json.decode(line)
        return event

    def close(self) -> None:
        self._response.close()


def _content(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


def _is_news(shown: tuple[int, VersionedValue], seen: VersionedValue) -> bool:
    """Resource versions of one kind are decimal numbers that grow (KEP-5504)."""
    version, what = shown
    return what.version != seen.version and version > int(seen.version or 0)


def _spec(value: RegisterValue) -> Json:
    """What people see of it: `kubectl get lease` shows the holder. A value that nobody holds has none."""
    renewed = datetime.datetime.fromtimestamp(value.renewed_ms / 1000, datetime.UTC)
    return {
        "holderIdentity": f"broker-{value.holder}" if value.holder >= 0 else None,
        "leaseDurationSeconds": max(1, value.lease_ms // 1000),
        "leaseTransitions": value.epoch,
        "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
