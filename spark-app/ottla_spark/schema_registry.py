"""A client of a schema registry with Confluent's REST interface, and the framing of its records.

A framed value begins with the byte 0 and the id of its schema (4 bytes, big-endian).
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/
"""

from __future__ import annotations

import base64
import json
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from ottla_spark.errors import PipelineError
from ottla_spark.librdkafka_properties import to_librdkafka

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 30.0
_FRAME: Final = struct.Struct(">bI")
FRAME_BYTES: Final = _FRAME.size


class UnknownSchema(Exception):
    """The registry does not have the schema."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """`login`: name:password, or empty. `authorities`: certificates as PEM that TLS trusts; empty
    for those of the system. Methods raise PipelineError.
    """

    url: str
    login: str = ""
    authorities: str = ""

    def schema_by_id(self, schema_id: int) -> str:
        """Text of a schema, with the types that it refers to. Raises UnknownSchema."""
        return str(self._send("GET", f"/schemas/ids/{schema_id}?format=resolved")["schema"])

    def schema_of_version(self, subject: str, version: str) -> str:
        """Raises UnknownSchema."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?format=resolved"
        return str(self._send("GET", path)["schema"])

    def register(self, subject: str, schema: str) -> int:
        """Registers a schema, unless the subject has it. Returns its id."""
        return int(self._send("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})["id"])

    def find_id(self, subject: str, schema: str) -> int:
        """Id of a schema that the subject has. Raises UnknownSchema."""
        return int(self._send("POST", f"/subjects/{quote(subject, safe='')}", {"schema": schema})["id"])

    def _send(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}
        if self.login:
            headers["Authorization"] = "Basic " + base64.b64encode(self.login.encode()).decode()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers, method=method)
        context = ssl.create_default_context(cadata=self.authorities or None) if self.url.startswith("https:") else None
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise UnknownSchema(_message(error)) from None
            raise PipelineError(f"the schema registry at {self.url} refuses: {_message(error)}") from None
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise PipelineError(f"no schema registry responds at {self.url}: {reason}") from None


NO_REGISTRY: Final = SchemaRegistry("")


def registry_of(url: str, kafka: Mapping[str, str]) -> SchemaRegistry:
    """The registry with the login of the client properties, as that of an Ottla broker expects.
    `url` may be empty if nothing asks it.
    """
    client = to_librdkafka(kafka)
    name, password = client.get("sasl.username", ""), client.get("sasl.password", "")
    return SchemaRegistry(url, f"{name}:{password}" if name else "", client.get("ssl.ca.pem", ""))


def frame(schema_id: int) -> bytes:
    return _FRAME.pack(0, schema_id)


def framed_schema_id(value: bytes | bytearray) -> int | None:
    """Id of the schema that a framed value begins with; None if it is not framed."""
    if len(value) < FRAME_BYTES:
        return None
    magic, schema_id = _FRAME.unpack_from(value)
    return int(schema_id) if magic == 0 else None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
