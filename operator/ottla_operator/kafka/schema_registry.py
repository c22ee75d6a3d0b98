"""A client of a schema registry with Confluent's REST interface."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote

from ottla_operator.kafka.client import Unreachable

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S: Final = 30.0


class RegistryRefusal(Exception):
    """The registry's error. `code` begins with the HTTP status, such as 40401."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_not_found(self) -> bool:
        return str(self.code).startswith("404")


class SchemaRegistry:
    """`login`: name:password, or empty. Methods raise RegistryRefusal and Unreachable."""

    def __init__(self, url: str, login: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
        if login:
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def list_subjects(self, *, deleted: bool = False) -> list[str]:
        return list(self._send("GET", f"/subjects?deleted={str(deleted).lower()}"))

    def get_version(self, subject: str, version: str = "latest") -> dict[str, Any]:
        return dict(self._send("GET", f"/subjects/{_path(subject)}/versions/{_path(version)}"))

    def get_schema(self, schema_id: int) -> dict[str, Any]:
        return dict(self._send("GET", f"/schemas/ids/{schema_id}"))

    def get_compatibility(self, subject: str) -> str:
        return str(self._send("GET", f"/config/{_path(subject)}?defaultToGlobal=true")["compatibilityLevel"])

    def set_compatibility(self, subject: str, level: str) -> None:
        self._send("PUT", f"/config/{_path(subject)}", {"compatibility": level})

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """The schema's id."""
        return int(self._send("POST", f"/subjects/{_path(subject)}/versions", schema)["id"])

    def find_incompatibilities(self, subject: str, schema: dict[str, Any]) -> list[str]:
        """Why the schema could not be registered now; empty if it could."""
        path = f"/compatibility/subjects/{_path(subject)}/versions?verbose=true"
        answer = self._send("POST", path, schema)
        return [] if answer["is_compatible"] else list(answer.get("messages") or ["incompatible"])

    def _send(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _read_refusal(error) from None
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Unreachable(f"no schema registry responds at {self._url}: {reason}") from None


def _read_refusal(error: urllib.error.HTTPError) -> RegistryRefusal:
    try:
        found = json.load(error)
        return RegistryRefusal(int(found["error_code"]), str(found["message"]))
    except (ValueError, KeyError, TypeError):
        return RegistryRefusal(error.code, error.reason)


def _path(name: str) -> str:
    return quote(name, safe="")
