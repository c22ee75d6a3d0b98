"""A client of a schema registry with Confluent's REST interface."""

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ottla_operator.kafka.client import Unreachable

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S: Final = 30.0
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class RegistryRefusal(Exception):
    """The registry's error. `code` begins with the HTTP status, such as 40401."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])

    @property
    def is_not_found(self) -> bool:
        return self.status == 404


@dataclass(frozen=True, slots=True)
class RegistryTls:
    """`server_name`: the name that the certificate must have; empty for the host of the URL."""

    context: ssl.SSLContext
    server_name: str = ""


class SchemaRegistryClient:
    """`urls`: addresses of the same registry; a request goes to the first that answers. `login`:
    name:password, or empty. `tls`: settings for URLs with https; None for the system's authorities.
    Methods raise RegistryRefusal and Unreachable.
    """

    def __init__(self, *urls: str, login: str = "", tls: RegistryTls | None = None) -> None:
        self._urls = [it.rstrip("/") for it in urls]
        self._tls = tls
        self._headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE, "Connection": "close"}
        if login:
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def list_subjects(self) -> list[str]:
        return list(self._send("GET", "/subjects"))

    def get_version(self, subject: str, version: str = "latest") -> dict[str, Any]:
        return dict(self._send("GET", f"/subjects/{_path(subject)}/versions/{_path(version)}"))

    def find_version(self, subject: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """The version of the subject that has the schema; None if none has."""
        try:
            return dict(self._send("POST", f"/subjects/{_path(subject)}", schema))
        except RegistryRefusal as error:
            if error.is_not_found:
                return None
            raise

    def get_compatibility(self, subject: str) -> str:
        return str(self._send("GET", f"/config/{_path(subject)}?defaultToGlobal=true")["compatibilityLevel"])

    def set_compatibility(self, subject: str, level: str) -> None:
        self._send("PUT", f"/config/{_path(subject)}", {"compatibility": level})

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Registers the schema, and returns its id."""
        return int(self._send("POST", f"/subjects/{_path(subject)}/versions", schema)["id"])

    def delete_subject(self, subject: str) -> Sequence[int]:
        """Soft-deletes the subject. Returns its versions; none if there is no such subject."""
        try:
            return list(self._send("DELETE", f"/subjects/{_path(subject)}"))
        except RegistryRefusal as error:
            if error.is_not_found:
                return ()
            raise

    def find_incompatibilities(self, subject: str, schema: dict[str, Any]) -> list[str]:
        """The reasons why the schema could not be registered now; empty if it could."""
        path = f"/compatibility/subjects/{_path(subject)}/versions?verbose=true"
        answer = self._send("POST", path, schema)
        return [] if answer["is_compatible"] else list(answer.get("messages") or ["incompatible"])

    def _send(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        for url in self._urls[:-1]:
            try:
                return self._send_to(url, method, path, data)
            except Unreachable:
                continue
        return self._send_to(self._urls[-1], method, path, data)

    def _send_to(self, url: str, method: str, path: str, data: bytes | None) -> Any:
        try:
            connection = _connect(url, self._tls)
            try:
                connection.request(method, urlsplit(url).path + path, data, self._headers)
                response = connection.getresponse()
                text = response.read()
            finally:
                connection.close()
            if response.status >= 400:
                raise _read_refusal(response.status, response.reason, text)
            return json.loads(text)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unreachable(f"no schema registry responds at {url}: {error}") from None


def _connect(url: str, tls: RegistryTls | None) -> http.client.HTTPConnection:
    """Raises OSError, ValueError."""
    address = urlsplit(url)
    if address.scheme not in DEFAULT_PORTS or address.hostname is None:
        raise ValueError("its address has the form http://HOST:PORT or https://HOST:PORT")
    host, port = address.hostname, address.port or DEFAULT_PORTS[address.scheme]
    connection = http.client.HTTPConnection(host, port, TIMEOUT_S)
    connection.sock = socket.create_connection((host, port), TIMEOUT_S)
    if address.scheme == "https":
        tls = tls or RegistryTls(ssl.create_default_context())
        try:
            connection.sock = tls.context.wrap_socket(connection.sock, server_hostname=tls.server_name or host)
        except OSError:
            connection.close()
            raise
    return connection


def _read_refusal(status: int, reason: str, text: bytes) -> RegistryRefusal:
    try:
        found = json.loads(text)
        return RegistryRefusal(int(found["error_code"]), str(found["message"]))
    except (ValueError, KeyError, TypeError):
        return RegistryRefusal(status, reason)


def _path(name: str) -> str:
    return quote(name, safe="")
