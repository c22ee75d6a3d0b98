"""The API server, as far as the operator needs it: read, list, server-side apply, delete. Plain JSON in and out.

Every write is made under our own field manager, so that what people and other controllers set beside stays theirs.
"""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import kopf

from ottla_operator.kube.kinds import Kind, kind_of
from ottla_operator.plan.objects.names import FIELD_MANAGER
from ottla_operator.resources.model import Json

TIMEOUT_S: Final = 15.0
CREDENTIALS_FOR_S: Final = 30.0  # a projected token is rotated in its file long before it ends
CONNECTIONS: Final = 16
NOT_FOUND, CONFLICT = 404, 409
AWAY: Final = (0, 429, 502, 503, 504)
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"
METADATA: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"

Login = Callable[[], kopf.ConnectionInfo]


class ApiError(Exception):
    """What the API server said instead of doing it; `status` 0 when it did not answer."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status

    @property
    def away(self) -> bool:
        """Whether that is the API server's trouble, whatever it was asked: it is not there, or has too much to do."""
        return self.status in AWAY


class Api:
    """One per event loop. `login`: who we are; asked again now and then. `written`: called with the kind of each write."""

    def __init__(self, login: Login, written: Callable[[str], None] = lambda kind: None) -> None:
        self._login = login
        self._written = written
        self._session: aiohttp.ClientSession | None = None
        self._known: tuple[float, kopf.ConnectionInfo, ssl.SSLContext] | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        try:
            return await self._ask("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows the kind: its CRD may not be there yet."""
        try:
            found = await self._ask("GET", f"/apis/{kind.api}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return any(it["name"] == kind.plural for it in found["resources"])

    async def list_metadata(self, kind: Kind, namespace: str | None) -> list[Json]:
        """Of all that there are now."""
        answer = await self._ask("GET", kind.path(namespace), accept=METADATA)
        return [it["metadata"] for it in answer["items"] or ()]  # of none, null

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Json]:
        """By name."""
        answer = await self._ask("GET", kind.path(namespace), query={"labelSelector": selector} if selector else {})
        # The API server leaves apiVersion and kind out of lists.
        every = ({"apiVersion": kind.api, "kind": kind.name, **it} for it in answer["items"])
        return sorted(every, key=lambda it: str(it["metadata"]["name"]))

    async def apply(self, wanted: Json) -> Json:
        """Server-side apply; fields that others have set otherwise become ours. The object as it is then."""
        return await self._apply(wanted, "")

    async def apply_status(self, wanted: Json) -> Json:
        return await self._apply(wanted, "/status")

    async def _apply(self, wanted: Json, part: str) -> Json:
        kind, metadata = kind_of(wanted), wanted["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"]) + part
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._ask("PATCH", path, wanted, query=query, content=APPLY, kind=kind)

    async def merge(self, kind: Kind, namespace: str, name: str, change: Json) -> Json:
        """A merge patch; with metadata.resourceVersion in it, only on the object of that version (409 otherwise)."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._ask("PATCH", kind.path(namespace, name), change, query=query, content=MERGE, kind=kind)

    async def create(self, wanted: Json) -> Json:
        kind = kind_of(wanted)
        query = {"fieldManager": FIELD_MANAGER}
        return await self._ask("POST", kind.path(wanted["metadata"].get("namespace")), wanted, query=query, kind=kind)

    async def delete(self, kind: Kind, it: Json, *, orphan: bool = False) -> None:
        """Just this object, not another of the same name that came after it. `orphan`: what it owns stays."""
        metadata = it["metadata"]
        options = {
            "preconditions": {"uid": metadata["uid"]},
            "propagationPolicy": "Orphan" if orphan else "Background",
        }
        try:
            await self._ask("DELETE", kind.path(metadata.get("namespace"), metadata["name"]), options, kind=kind)
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
        accept: str = JSON,
        kind: Kind | None = None,
    ) -> Json:
        if kind is not None:
            self._written(kind.name)
        info, trust = self._credentials()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS), timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
            )
        headers = info.as_http_headers() | {"Accept": accept} | ({"Content-Type": content} if body is not None else {})
        data = json.dumps(body).encode() if body is not None else None
        try:
            async with self._session.request(
                method, info.server.rstrip("/") + path, params=query, data=data, headers=headers, ssl=trust
            ) as response:
                answer = _read(response.status, await response.text())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(0, f"the API server does not answer: {error or type(error).__name__}") from error
        if response.status >= 400:
            if response.status == 401:
                self._known = None
            raise ApiError(response.status, str((answer or {}).get("message") or f"status {response.status}"))
        return answer

    def _credentials(self) -> tuple[kopf.ConnectionInfo, ssl.SSLContext]:
        now = asyncio.get_running_loop().time()
        if self._known is None or now - self._known[0] > CREDENTIALS_FOR_S:
            info = self._login()
            same = self._known is not None and _trust_of(self._known[1]) == _trust_of(info)
            trust = self._known[2] if self._known and same else info.as_ssl_context()
            self._known = now, info, trust
        return self._known[1], self._known[2]


def _read(status: int, text: str) -> Json:
    """What it answers is JSON, except that some refusals are plain text: a group that it does not know. ValueError."""
    try:
        return json.loads(text)
    except ValueError:
        if status >= 400:
            return {"message": text.strip()}
        raise


def _trust_of(info: kopf.ConnectionInfo) -> tuple[object, ...]:
    return (
        info.ca_path,
        info.ca_data,
        info.certificate_data,
        info.certificate_path,
        info.private_key_path,
        info.insecure,
    )
