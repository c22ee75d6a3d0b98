"""Parses REST requests, their query parameters, paths and bodies, and builds responses.

Booleans may be in upper or lower case, because clients print those of their own language. Unknown
parameters and fields of bodies are ignored.
"""

from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from ottla_broker.registry import errors
from ottla_broker.registry.schema import LATEST, JsonObject, Reference, Schema, SchemaType
from ottla_broker.registry.state import SchemaVersion
from ottla_broker.registry.subject_names import DEFAULT_CONTEXT, qualify_subject

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ACCEPTS_UNKNOWN: Final = "Confluent-Accept-Unknown-Properties"
"""A client with this header ignores fields that it does not know, and gets newer ones."""
MAX_VERSION: Final = 2**31 - 1

T = TypeVar("T")


class SchemaBody(msgspec.Struct, rename={"schema_type": "schemaType", "rule_set": "ruleSet"}):
    """A schema in a request. `id`, `version`: as in `Registration`."""

    schema: str = ""
    schema_type: str | None = None
    references: list[Reference] | None = None
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    id: int | None = None
    version: int | None = None

    def to_schema(self) -> Schema:
        """The schema, by default of type Avro. Raises RegistryError if its text is empty."""
        if not self.schema.strip():
            raise errors.invalid_schema("it is empty")
        return Schema(
            self.schema_type or SchemaType.avro,
            self.schema,
            tuple(self.references or ()),
            self.metadata or None,
            self.rule_set or None,
        )


async def read_schema_body(request: web.Request) -> SchemaBody:
    """The schema in the request's body. Raises RegistryError."""
    return decode_body(await request.read(), SchemaBody)


async def read_object(request: web.Request) -> JsonObject:
    """The JSON object in the request's body. Raises RegistryError."""
    return decode_body(await request.read(), dict[str, Any])


def decode_body(body: bytes, kind: type[T]) -> T:
    """Raises RegistryError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as reason:
        raise errors.bad_request(f"invalid request: {reason}") from None
    except (msgspec.MsgspecError, RecursionError) as reason:
        raise errors.RegistryError(400, f"the body is not JSON: {reason}") from None


def has_flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def read_integer(request: web.Request, name: str, default: int) -> int:
    """A parameter of the query. Raises RegistryError."""
    text = request.query.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise errors.bad_request(f"parameter {name}={text!r} is not a number") from None


def subject_of(request: web.Request) -> str:
    """The subject that the path names, in the path's context unless it names one itself."""
    return qualify_subject(request.match_info["subject"], path_context(request))


def path_context(request: web.Request) -> str:
    """The context that the path begins with (`/contexts/NAME/…`), else the default context."""
    context = request.match_info.get("context", "").strip(":")
    if not context:
        return DEFAULT_CONTEXT
    return context if context.startswith(".") else f".{context}"


def version_of(request: web.Request) -> int:
    """The version that the path names; LATEST for `latest` and `-1`. Raises RegistryError."""
    text = request.match_info["version"]
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:11]) <= MAX_VERSION:
        raise errors.invalid_version(text)
    return int(text)


def id_of(request: web.Request) -> int:
    """The schema id that the path names. Raises RegistryError."""
    text = request.match_info["id"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise errors.schema_not_found(text)
    return int(text)


def select_page(request: web.Request, items: list[T]) -> list[T]:
    """The items that the parameters `offset` and `limit` select; a negative limit: all of them from
    the offset on. Raises RegistryError.
    """
    offset, limit = max(0, read_integer(request, "offset", 0)), read_integer(request, "limit", -1)
    return items[offset:] if limit < 0 else items[offset : offset + limit]


def respond(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=CONTENT_TYPE)


def accepts_unknown(request: web.Request) -> bool:
    """True if the client accepts fields that were added to responses later."""
    return request.headers.get(ACCEPTS_UNKNOWN, "").lower() == "true"


def schema_fields(request: web.Request, schema: Schema, text: str) -> JsonObject:
    """The fields of a schema in a response. Clients take a schema without `schemaType` as Avro."""
    fields: JsonObject = {}
    if schema.type != SchemaType.avro or accepts_unknown(request):
        fields["schemaType"] = schema.type
    if schema.references:
        fields["references"] = schema.references
    if schema.metadata:
        fields["metadata"] = schema.metadata
    if schema.rule_set:
        fields["ruleSet"] = schema.rule_set
    if accepts_unknown(request):
        fields["guid"] = schema.guid()
    return fields | {"schema": text}


def version_fields(request: web.Request, version: SchemaVersion, text: str) -> JsonObject:
    """The fields of a version in a response, with those of its schema."""
    fields: JsonObject = {"subject": version.subject, "version": version.version, "id": version.id}
    if version.deleted and accepts_unknown(request):
        fields["deleted"] = True
    return fields | schema_fields(request, version.schema, text)
