"""A client of the API server with what the operator needs: get, list, create, server-side apply,
merge patch, delete. Plain JSON in and out.

Requests that create, apply or patch objects have the operator's own field manager. An apply is
forced: it takes over the fields that it sets, and leaves all other fields to their managers.
"""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import kopf

from ottla_operator.kube.kinds import ObjectKind, kind_of
from ottla_operator.plan.objects.names import FIELD_MANAGER
from ottla_operator.reconcile.platform import PlatformError
from ottla_operator.resources.model import Json

TIMEOUT_S: Final = 15.0
CREDENTIALS_TTL_S: Final = 30.0  # a projected token is rotated in its file long before it expires
MAX_CONNECTIONS: Final = 16
FORBIDDEN, NOT_FOUND, CONFLICT, UNPROCESSABLE = 403, 404, 409, 422
REJECTED: Final = (FORBIDDEN, UNPROCESSABLE)
"""HTTP statuses of rejected requests, such as for a claim beyond a quota, or one that its storage
class cannot expand.
"""
UNAVAILABLE: Final = (0, 429, 502, 503, 504)
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"
METADATA: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"

Login = Callable[[], kopf.ConnectionInfo]


class ApiError(PlatformError):
    """The API server refused a request. `status`: HTTP status; 0 without a response, or if the
    response to a successful request is not JSON.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.is_unavailable = status in UNAVAILABLE
        self.is_rejection = status in REJECTED


class ApiClient:
    """One per event loop. `login`: returns credentials; called again when they may have been
    rotated. `on_write`: called with the kind before each write. Requests raise ApiError, and
    kopf.LoginError if `login` does.
    """

    def __init__(self, login: Login, on_write: Callable[[str], None] = lambda kind: None) -> None:
        self._login = login
        self._on_write = on_write
        self._session: aiohttp.ClientSession | None = None
        self._credentials: tuple[float, kopf.ConnectionInfo, ssl.SSLContext] | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, kind: ObjectKind, namespace: str | None, name: str) -> Json | None:
        """None if the object does not exist."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def serves(self, kind: ObjectKind) -> bool:
        """True if the API server knows the kind: its CRD may not be installed."""
        try:
            found = await self._request("GET", f"/apis/{kind.api}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return any(it["name"] == kind.plural for it in found["resources"])

    async def list_metadata(self, kind: ObjectKind, namespace: str | None) -> list[Json]:
        """Metadata of all objects of the kind."""
        answer = await self._request("GET", kind.path(namespace), accept=METADATA)
        return [it["metadata"] for it in answer["items"] or ()]  # null if there are none

    async def list(self, kind: ObjectKind, namespace: str | None, selector: str = "", fields: str = "") -> list[Json]:
        """Objects of the kind, sorted by name. `selector`: of labels. `fields`: field selector."""
        selectors = {"labelSelector": selector, "fieldSelector": fields}
        query = {key: value for key, value in selectors.items() if value}
        answer = await self._request("GET", kind.path(namespace), query=query)
        # The API server leaves apiVersion and kind out of lists.
        items = ({"apiVersion": kind.api, "kind": kind.name, **it} for it in answer["items"])
        return sorted(items, key=lambda it: str(it["metadata"]["name"]))

    async def apply(self, desired: Json) -> Json:
        """Server-side apply. Fields of other managers become the operator's. Returns the resulting
        object.
        """
        return await self._apply(desired, "")

    async def apply_status(self, desired: Json) -> Json:
        return await self._apply(desired, "/status")

    async def _apply(self, desired: Json, part: str) -> Json:
        kind, metadata = kind_of(desired), desired["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"]) + part
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, desired, query=query, content=APPLY, kind=kind)

    async def merge(self, kind: ObjectKind, namespace: str, name: str, change: Json) -> Json:
        """A merge patch; with metadata.resourceVersion in it, only of the object of that version
        (409 otherwise).
        """
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request("PATCH", kind.path(namespace, name), change, query=query, content=MERGE, kind=kind)

    async def create(self, desired: Json) -> Json:
        kind = kind_of(desired)
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request(
            "POST", kind.path(desired["metadata"].get("namespace")), desired, query=query, kind=kind
        )

    async def delete(self, kind: ObjectKind, resource: Json, *, orphan: bool = False) -> None:
        """Deletes this object, but not a later one with its name. Does nothing if the object is
        gone. `orphan`: objects that it owns are kept.
        """
        metadata = resource["metadata"]
        options = {
            "preconditions": {"uid": metadata["uid"]},
            "propagationPolicy": "Orphan" if orphan else "Background",
        }
        try:
            await self._request("DELETE", kind.path(metadata.get("namespace"), metadata["name"]), options, kind=kind)
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    async def _request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
        accept: str = JSON,
        kind: ObjectKind | None = None,
    ) -> Json:
        if kind is not None:
            self._on_write(kind.name)
        info, ssl_context = self._log_in()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS), timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
            )
        headers = info.as_http_headers() | {"Accept": accept} | ({"Content-Type": content} if body is not None else {})
        data = json.dumps(body).encode() if body is not None else None
        try:
            async with self._session.request(
                method, info.server.rstrip("/") + path, params=query, data=data, headers=headers, ssl=ssl_context
            ) as response:
                answer = _parse(response.status, await response.text())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(0, f"the API server does not answer: {error or type(error).__name__}") from error
        if response.status >= 400:
            if response.status == 401:
                self._credentials = None
            raise ApiError(response.status, str((answer or {}).get("message") or f"status {response.status}"))
        return answer

    def _log_in(self) -> tuple[kopf.ConnectionInfo, ssl.SSLContext]:
        now = asyncio.get_running_loop().time()
        if self._credentials is None or now - self._credentials[0] > CREDENTIALS_TTL_S:
            info = self._login()
            is_same = self._credentials is not None and _tls_files(self._credentials[1]) == _tls_files(info)
            ssl_context = self._credentials[2] if self._credentials and is_same else info.as_ssl_context()
            self._credentials = now, info, ssl_context
        return self._credentials[1], self._credentials[2]


def _parse(status: int, text: str) -> Json:
    """JSON, except that some errors are plain text, such as that of an unknown API group. Raises
    ValueError.
    """
    try:
        return json.loads(text)
    except ValueError:
        if status >= 400:
            return {"message": text.strip()}
        raise


def _tls_files(info: kopf.ConnectionInfo) -> tuple[object, ...]:
    return (
        info.ca_path,
        info.ca_data,
        info.certificate_data,
        info.certificate_path,
        info.private_key_path,
        info.insecure,
    )
