"""A client of the Kubernetes API for tests: JSON over HTTPS with a bearer token, standard library
only.
"""

import base64
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Json = dict[str, Any]
REQUEST_TIMEOUT_S = 10.0
PATCH_CONTENT_TYPES = {"PATCH": "application/merge-patch+json", "APPLY": "application/apply-patch+yaml"}


class ApiError(Exception):
    """The API server rejected a request; `status` is the HTTP status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class ApiClient:
    """A client with one identity: `url` is https://host:port, `ca_certificate` the PEM file to
    trust, `token` the bearer token.
    """

    url: str
    ca_certificate: Path
    token: str

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_certificate))

    def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """Sends a request and returns the parsed JSON response.

        `path` is absolute. `method` is an HTTP method, or APPLY for server-side apply. Raises
        ApiError when the API server rejects the request, and OSError when it cannot be reached.
        """
        response = self.request_text(method, path, body)
        parsed: Json = json.loads(response)
        return parsed

    def request_text(self, method: str, path: str, body: Json | None = None) -> str:
        """Sends a request and returns the response as text; see `request`."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method={"APPLY": "PATCH"}.get(method, method),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": PATCH_CONTENT_TYPES.get(method, "application/json"),
            },
        )
        try:
            with urllib.request.urlopen(request, context=self._tls_context, timeout=REQUEST_TIMEOUT_S) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            message = error.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):  # some error responses are plain text
                message = json.loads(message)["message"]
            raise ApiError(error.code, message) from error

    def get(self, path: str) -> Json | None:
        """Returns the object, or None if it does not exist."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def watch(self, path: str, version: str, within_s: int = 5) -> Iterator[Json]:
        """Yields the watch events (`type` and `object`) of a collection after a resource version.

        The API server ends the watch after `within_s` seconds. Raises OSError and ApiError.
        """
        url = f"{self.url}{path}?watch=1&resourceVersion={version}&timeoutSeconds={within_s}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, context=self._tls_context, timeout=REQUEST_TIMEOUT_S) as response:
                for line in response:
                    yield json.loads(line)
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from error

    def is_ready(self) -> bool:
        """True if the API server's readiness check succeeds."""
        try:
            return self.request_text("GET", "/readyz") == "ok"
        except (OSError, ApiError):
            return False

    def write_kubeconfig(self, path: Path) -> Path:
        """Writes a kubeconfig with this client's identity to `path`. JSON is valid YAML."""
        ca_data = base64.b64encode(self.ca_certificate.read_bytes()).decode()
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "clusters": [
                        {"name": "tests", "cluster": {"server": self.url, "certificate-authority-data": ca_data}}
                    ],
                    "users": [{"name": "tests", "user": {"token": self.token}}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                }
            )
        )
        path.chmod(0o600)
        return path
