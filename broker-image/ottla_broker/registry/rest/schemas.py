"""/schemas: schemas by id and by GUID, and the supported schema types."""

from typing import NamedTuple

from aiohttp import web

from ottla_broker.registry import errors
from ottla_broker.registry.rest import requests
from ottla_broker.registry.rest.requests import has_flag, id_of, respond, select_page
from ottla_broker.registry.rest.subjects import find_subjects
from ottla_broker.registry.schema import SCHEMA_TYPES, JsonObject, Schema
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.state import SchemaVersion
from ottla_broker.registry.subject_names import DEFAULT_CONTEXT, SubjectName, context_of, parse_subject, qualify_subject


class FoundSchema(NamedTuple):
    """A schema, and the context in which it has the id."""

    context: str
    id: int
    schema: Schema


class SchemasApi:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    async def list_types(self, request: web.Request) -> web.Response:
        return respond(sorted(SCHEMA_TYPES, reverse=True))

    async def list_schemas(self, request: web.Request) -> web.Response:
        prefix = request.query.get("subjectPrefix", str(SubjectName(requests.path_context(request), "")))
        with_deleted, latest_only = has_flag(request, "deleted"), has_flag(request, "latestOnly")
        state = self._registry.state
        found: list[SchemaVersion] = []
        async for subject in find_subjects(request, state, prefix):
            versions = state.versions(subject, with_deleted=with_deleted)
            found += versions[-1:] if latest_only else versions
        found.sort(key=lambda one: (one.subject, one.version))
        return respond([requests.version_fields(request, one, one.schema.text) for one in select_page(request, found)])

    async def get_schema(self, request: web.Request) -> web.Response:
        found = self._find_schema(request)
        fields = requests.schema_fields(request, found.schema, await self._text(request, found))
        if has_flag(request, "fetchMaxId"):
            fields["maxId"] = self._registry.state.contexts[found.context].max_id
        return respond(fields)

    async def get_schema_text(self, request: web.Request) -> web.Response:
        text = await self._text(request, self._find_schema(request))
        return web.Response(text=text, content_type=requests.CONTENT_TYPE)

    async def list_subjects(self, request: web.Request) -> web.Response:
        return respond(select_page(request, sorted({version.subject for version in self._find_versions(request)})))

    async def list_versions(self, request: web.Request) -> web.Response:
        found = sorted((version.subject, version.version) for version in self._find_versions(request))
        versions: list[JsonObject] = [{"subject": subject, "version": version} for subject, version in found]
        return respond(select_page(request, versions))

    async def get_by_guid(self, request: web.Request) -> web.Response:
        guid = request.match_info["guid"]
        known = self._registry.state.find_by_guid(guid)
        if known is None:
            raise errors.schema_not_found(guid)
        context, schema_id = known
        found = FoundSchema(context, schema_id, self._registry.state.contexts[context].schemas[schema_id])
        self._check_described(request, context, schema_id)
        return respond(requests.schema_fields(request, found.schema, await self._text(request, found)))

    async def list_ids_of_guid(self, request: web.Request) -> web.Response:
        guid, contexts = request.match_info["guid"], self._registry.state.contexts
        found = self._registry.state.find_by_guid(guid)
        if found is None:
            raise errors.schema_not_found(guid)
        fingerprint = contexts[found[0]].schemas[found[1]].fingerprint()
        ids = {name: one.ids[fingerprint] for name, one in contexts.items() if fingerprint in one.ids}
        described = [(name, one) for name, one in sorted(ids.items()) if self._is_described(request, name, one)]
        if not described:
            raise not_described(found[1])
        return respond([{"context": name, "id": schema_id} for name, schema_id in described])

    async def _text(self, request: web.Request, found: FoundSchema) -> str:
        """The schema's text in the form that the request asks for. Raises RegistryError."""
        of_context = str(SubjectName(found.context, ""))
        return await self._registry.format_schema(of_context, found.schema, request.query.get("format", ""))

    def _find_schema(self, request: web.Request) -> FoundSchema:
        """The schema with the id of the path, in the context that the request names; without one,
        in the default context, else in the first other one that has the id. Contexts that have the
        `subject` of the query come first among these. Raises RegistryError.
        """
        schema_id, state = id_of(request), self._registry.state
        subject = request.query.get("subject", "")
        named = context_of(qualify_subject(subject, requests.path_context(request)))
        contexts = [named]
        if named == DEFAULT_CONTEXT:
            contexts += sorted(
                (name for name in state.contexts if name != named),
                key=lambda name: str(SubjectName(name, parse_subject(subject).name)) not in state.subjects,
            )
        for context in contexts:
            known = state.contexts.get(context)
            if known is not None and schema_id in known.schemas:
                self._check_described(request, context, schema_id)
                return FoundSchema(context, schema_id, known.schemas[schema_id])
        raise errors.schema_not_found(schema_id)

    def _check_described(self, request: web.Request, context: str, schema_id: int) -> None:
        """Raises RegistryError 403 for clients that may describe none of the schema's subjects."""
        if not self._is_described(request, context, schema_id):
            raise not_described(schema_id)

    def _is_described(self, request: web.Request, context: str, schema_id: int) -> bool:
        """True if the client may describe one of the schema's subjects."""
        uses = self._registry.state.contexts[context].uses[schema_id]
        return any(request["may_describe"](subject) for subject in {version.subject for version in uses})

    def _find_versions(self, request: web.Request) -> list[SchemaVersion]:
        """The versions that have the schema with the id of the path, as far as the client may
        describe them and its parameters select them. Raises RegistryError.
        """
        found = self._find_schema(request)
        with_deleted, subject = has_flag(request, "deleted"), request.query.get("subject", "")
        name = parse_subject(subject).name
        return [
            version
            for version in self._registry.state.contexts[found.context].uses[found.id]
            if (with_deleted or not version.deleted)
            and (not name or parse_subject(version.subject).name == name)
            and request["may_describe"](version.subject)
        ]


def not_described(schema_id: int) -> errors.RegistryError:
    return errors.RegistryError(40301, f"schema {schema_id} is of no subject that you may describe")
