"""/compatibility: whether a schema could be registered, without registering it."""

from aiohttp import web

from ottla_broker.registry import errors
from ottla_broker.registry.compatibility import CompatibilityLevel, level_of
from ottla_broker.registry.registrations import plan_check
from ottla_broker.registry.rest import requests
from ottla_broker.registry.rest.requests import has_flag, respond, subject_of, version_of
from ottla_broker.registry.schema import LATEST, JsonObject
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.state import SchemaVersion


class CompatibilityApi:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    async def check_version(self, request: web.Request) -> web.Response:
        """Checks against the version that the path names, by the subject's level. Every schema is
        compatible with "latest" of a subject without versions.
        """
        subject, number, state = subject_of(request), version_of(request), self._registry.state
        version = state.version(subject, number)
        if version is None and number != LATEST:
            if not state.versions(subject):
                raise errors.subject_not_found(subject)
            raise errors.version_not_found(number)
        level = level_of(state, subject)
        versions = [] if version is None or level is CompatibilityLevel.none else [version]
        return await self._check(request, level, versions)

    async def check_subject(self, request: web.Request) -> web.Response:
        """Checks against the versions that the subject's level demands of a registration."""
        subject = subject_of(request)
        body = await requests.read_schema_body(request)
        check = plan_check(self._registry.state, subject, body.to_schema())
        return await self._check(request, check.level, list(check.versions))

    async def _check(
        self, request: web.Request, level: CompatibilityLevel, versions: list[SchemaVersion]
    ) -> web.Response:
        subject, body = subject_of(request), await requests.read_schema_body(request)
        schema = await self._registry.parse_schema(subject, body.to_schema(), normalize=has_flag(request, "normalize"))
        messages = await self._registry.find_incompatibilities(subject, schema, level, versions)
        fields: JsonObject = {"is_compatible": not messages}
        if has_flag(request, "verbose"):
            fields["messages"] = messages
        return respond(fields)
