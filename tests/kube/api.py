"""Asking an API server, for tests: JSON over HTTPS with a bearer token, standard library only."""

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
ASK_WITHIN_S = 10.0
PATCHES = {"PATCH": "application/merge-patch+json", "APPLY": "application/apply-patch+yaml"}


class Refused(Exception):
    """What the API server said instead of doing it."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """`url`: https://host:port. `authority`: the certificate to trust. `token`: who asks."""

    url: str
    authority: Path
    token: str

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """`path` from the root. Raises Refused; OSError when nobody answers."""
        answer = self.ask_text(method, path, body)
        found: Json = json.loads(answer)
        return found

    def ask_text(self, method: str, path: str, body: Json | None = None) -> str:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method={"APPLY": "PATCH"}.get(method, method),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": PATCHES.get(method, "application/json"),
            },
        )
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=ASK_WITHIN_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):  # some refusals are plain text
                said = json.loads(said)["message"]
            raise Refused(error.code, said) from error

    def get(self, path: str) -> Json | None:
        """None when it is not there."""
        try:
            return self.ask("GET", path)
        except Refused as reason:
            if reason.status == 404:
                return None
            raise

    def watch(self, path: str, version: str, within_s: int = 5) -> Iterator[Json]:
        """What happens to a collection after a version of it: events of `type` and `object`. Ends after `within_s`; OSError, Refused."""
        asked = f"{self.url}{path}?watch=1&resourceVersion={version}&timeoutSeconds={within_s}"
        request = urllib.request.Request(asked, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=ASK_WITHIN_S) as answer:
                for line in answer:
                    yield json.loads(line)
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode(errors="replace")) from error

    def ready(self) -> bool:
        try:
            return self.ask_text("GET", "/readyz") == "ok"
        except (OSError, Refused):
            return False

    def kubeconfig(self, path: Path) -> Path:
        """Writes one for this asker; JSON, which is YAML, too."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "clusters": [
                        {"name": "tests", "cluster": {"server": self.url, "certificate-authority-data": authority}}
                    ],
                    "users": [{"name": "tests", "user": {"token": self.token}}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                }
            )
        )
        path.chmod(0o600)
        return path
