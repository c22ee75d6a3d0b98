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
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final
from urllib.parse import quote

from ottla_spark.errors import PipelineError
from ottla_spark.librdkafka_properties import parse_password_login

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 30.0
_FRAME: Final = struct.Struct(">bI")
FRAME_BYTES: Final = _FRAME.size


class UnknownSchema(Exception):
    """The registry does not have the schema."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that a schema refers to by `name`: a `$ref`, or the file of an import."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry. `type`: AVRO, JSON or PROTOBUF. `text`: in the form asked for."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """`login`: name:password, or empty. `authorities`: certificates as PEM that TLS trusts; empty
    for those of the system. `certificate`: the client's certificates and key as PEM, or empty.
    Methods raise PipelineError. Their `form` is the registry's parameter format: resolved (Avro
    with the types that it refers to) or serialized (descriptors of Protobuf).
    """

    url: str
    login: str = field(default="", repr=False)
    authorities: str = ""
    certificate: str = field(default="", repr=False)

    def schema_by_id(self, schema_id: int, form: str = "") -> RegisteredSchema:
        """Raises UnknownSchema."""
        return _parse_schema(self._send("GET", f"/schemas/ids/{schema_id}{_query(form)}"), schema_id)

    def schema_of_version(self, subject: str, version: str, form: str = "") -> RegisteredSchema:
        """`version`: a number or latest. Raises UnknownSchema."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}{_query(form)}"
        found = self._send("GET", path)
        return _parse_schema(found, int(found["id"]))

    def referenced_schemas(self, schema: RegisteredSchema, form: str = "") -> dict[str, RegisteredSchema]:
        """Schemas that the schema refers to, directly or indirectly, by the names in the
        references. Each is after those that it refers to.
        """
        found: dict[str, RegisteredSchema] = {}
        for reference in schema.references:
            if reference.name not in found:
                try:
                    one = self.schema_of_version(reference.subject, str(reference.version), form)
                except UnknownSchema as error:
                    raise PipelineError(f"the schema refers to {reference.name}: {error}") from error
                found |= {**self.referenced_schemas(one, form), reference.name: one}
        return found

    def register(self, subject: str, text: str, type_: str) -> int:
        """Registers a schema, unless the subject has it. Returns its id."""
        body = {"schema": text, "schemaType": type_}
        return int(self._send("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def _send(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}
        if self.login:
            headers["Authorization"] = "Basic " + base64.b64encode(self.login.encode()).decode()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers, method=method)
        context = self._tls_context() if self.url.startswith("https:") else None
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

    def _tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authorities or None)
        if self.certificate:
            with NamedTemporaryFile("w") as file:  # ssl reads a certificate from files alone
                file.write(self.certificate)
                file.flush()
                context.load_cert_chain(file.name)
        return context


NO_REGISTRY: Final = SchemaRegistry("")


def registry_of(url: str, kafka: Mapping[str, str]) -> SchemaRegistry:
    """The registry, with the login and certificates of a Kafka client's properties, which an Ottla
    broker's registry expects. With https, the client's certificate is presented only if it is in
    the properties as PEM: the file of `ssl.keystore.location` is not read. A truststore that is not
    PEM raises PipelineError.
    """
    login = parse_password_login(kafka.get("sasl.jaas.config", ""))
    authorities = certificate = ""
    if url.startswith("https:"):
        authorities = kafka.get("ssl.truststore.certificates") or _read_truststore(url, kafka)
        parts = kafka.get("ssl.keystore.certificate.chain"), kafka.get("ssl.keystore.key")
        certificate = "\n".join(filter(None, parts))
    return SchemaRegistry(url, ":".join(login) if login else "", authorities, certificate)


def _read_truststore(url: str, kafka: Mapping[str, str]) -> str:
    """Certificates in the file of the truststore; empty if there is none. Raises PipelineError."""
    location = kafka.get("ssl.truststore.location")
    if location is None:
        return ""
    type_ = kafka.get("ssl.truststore.type", "JKS")
    if type_.upper() != "PEM":
        raise PipelineError(
            f"the client property ssl.truststore.type={type_} is not supported for the schema registry at {url}; "
            "allowed: PEM"
        )
    try:
        return Path(location).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"the client property ssl.truststore.location={location}: {error}") from error


def frame_header(schema_id: int) -> bytes:
    """The bytes that a framed value of the schema begins with."""
    return _FRAME.pack(0, schema_id)


def framed_schema_id(value: bytes | bytearray) -> int | None:
    """Id of the schema that a framed value begins with; None if it is not framed."""
    if len(value) < FRAME_BYTES:
        return None
    magic, schema_id = _FRAME.unpack_from(value)
    return int(schema_id) if magic == 0 else None


def _query(form: str) -> str:
    return f"?format={form}" if form else ""


def _parse_schema(found: Any, schema_id: int) -> RegisteredSchema:
    references = tuple(Reference(it["name"], it["subject"], it["version"]) for it in found.get("references") or ())
    return RegisteredSchema(schema_id, found.get("schemaType", "AVRO"), found["schema"], references)


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
