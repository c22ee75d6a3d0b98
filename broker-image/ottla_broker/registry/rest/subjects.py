"""/subjects: subjects, their versions, registration, look-up and deletion."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from aiohttp import web

from ottla_broker.registry import errors
from ottla_broker.registry.deletions import plan_subject_deletion, plan_version_deletion
from ottla_broker.registry.inherited_metadata import with_inherited
from ottla_broker.registry.record_format import SchemasRecord
from ottla_broker.registry.registrations import Registration
from ottla_broker.registry.rest import requests
from ottla_broker.registry.rest.requests import has_flag, respond, select_page, subject_of, version_of
from ottla_broker.registry.schema import LATEST
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import DEFAULT_CONTEXT, WILDCARD, SubjectName, parse_subject

SUBJECTS_PER_SLICE: Final = 1000
"""Subjects that a slice visits before other tasks may run: some milliseconds."""


class SubjectsApi:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    async def list_subjects(self, request: web.Request) -> web.Response:
        context = requests.path_context(request)
        default_prefix = WILDCARD if context == DEFAULT_CONTEXT else str(SubjectName(context, ""))
        prefix = request.query.get("subjectPrefix", default_prefix)
        with_deleted, only_deleted = has_flag(request, "deleted"), wants_only_deleted(request)
        state = self._registry.state
        names = [
            subject
            async for subject in find_subjects(request, state, prefix)
            if is_listed(state, subject, with_deleted=with_deleted, only_deleted=only_deleted)
        ]
        return respond(select_page(request, sorted(names)))

    async def list_versions(self, request: web.Request) -> web.Response:
        subject, only_deleted = subject_of(request), wants_only_deleted(request)
        versions = self._registry.state.versions(subject, with_deleted=has_flag(request, "deleted") or only_deleted)
        if only_deleted:
            versions = [version for version in versions if version.deleted]
        if not versions:
            raise errors.subject_not_found(subject)
        return respond(select_page(request, [version.version for version in versions]))

    async def get_version(self, request: web.Request) -> web.Response:
        version = self._find_version(request)
        return respond(requests.version_fields(request, version, await self._text(request, version)))

    async def get_version_text(self, request: web.Request) -> web.Response:
        version = self._find_version(request)
        return web.Response(text=await self._text(request, version), content_type=requests.CONTENT_TYPE)

    async def _text(self, request: web.Request, version: SchemaVersion) -> str:
        return await self._registry.format_schema(version.subject, version.schema, request.query.get("format", ""))

    async def list_referrers(self, request: web.Request) -> web.Response:
        version = self._find_version(request)
        referrers = self._registry.state.referrers(
            version.subject, version.version, with_deleted=has_flag(request, "deleted")
        )
        return respond(select_page(request, sorted({one.id for one in referrers})))

    async def get_by_metadata(self, request: web.Request) -> web.Response:
        """The newest version whose metadata has all the properties of the parameters `key` and
        `value`.
        """
        subject = subject_of(request)
        wanted = dict(zip(request.query.getall("key", []), request.query.getall("value", []), strict=False))
        versions = self._registry.state.versions(subject, with_deleted=has_flag(request, "deleted"))
        if not versions:
            raise errors.subject_not_found(subject)
        for version in reversed(versions):
            properties = (version.schema.metadata or {}).get("properties") or {}
            if wanted.items() <= properties.items():
                text = await self._text(request, version)
                return respond(requests.version_fields(request, version, text))
        raise errors.schema_not_found()

    def _find_version(self, request: web.Request) -> SchemaVersion:
        """The version that the path names. Raises RegistryError."""
        subject, number, state = subject_of(request), version_of(request), self._registry.state
        with_deleted = has_flag(request, "deleted")
        version = state.version(subject, number, with_deleted=with_deleted)
        if version is not None:
            return version
        if not state.versions(subject, with_deleted=with_deleted):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)

    async def look_up(self, request: web.Request) -> web.Response:
        """POST /subjects/SUBJECT: the version that has the schema."""
        subject, body, state = subject_of(request), await requests.read_schema_body(request), self._registry.state
        with_deleted = has_flag(request, "deleted")
        if not state.versions(subject, with_deleted=with_deleted):
            raise errors.subject_not_found(subject)
        schema = await self._registry.parse_schema(subject, body.to_schema(), normalize=has_flag(request, "normalize"))
        version = await self._registry.find_version(subject, schema, with_deleted=with_deleted)
        if version is None:  # a client may leave out the metadata that a registration inherits
            inherited = with_inherited(self._registry.state, subject, schema)
            version = await self._registry.find_version(subject, inherited, with_deleted=with_deleted)
        if version is None:
            raise errors.schema_not_found()
        return respond(requests.version_fields(request, version, await self._text(request, version)))

    async def register(self, request: web.Request) -> web.Response:
        subject, body = subject_of(request), await requests.read_schema_body(request)
        schema = await self._registry.parse_schema(subject, body.to_schema(), normalize=self._normalizes(request))
        wanted_id = body.id if body.id is not None and body.id >= 0 else None
        wanted_version = body.version if body.version is not None and body.version > 0 else None
        inherited = with_inherited(self._registry.state, subject, schema)
        normal_form = await self._registry.find_normal_form(subject, inherited)
        registration = Registration(subject, schema, wanted_id, wanted_version, normal_form)
        version, schema_id = await self._registry.register(registration)
        if not requests.accepts_unknown(request):
            return respond({"id": schema_id})
        # Without the text: clients would cache it for every format that they ask for later.
        known = self._registry.state.version(subject, version, with_deleted=True)
        guid = schema.guid() if known is None else known.schema.guid()
        return respond({"id": schema_id, "version": version, "guid": guid})

    def _normalizes(self, request: web.Request) -> bool:
        """True if the client asks to normalize schemas, or the subject's config does."""
        if has_flag(request, "normalize"):
            return True
        state, subject = self._registry.state, subject_of(request)
        found = (state.configs.get(scope, {}).get("normalize") for scope in state.setting_scopes(subject))
        return next((bool(value) for value in found if value is not None), False)

    async def delete_subject(self, request: web.Request) -> web.Response:
        decide = partial(plan_subject_deletion, subject=subject_of(request), permanent=has_flag(request, "permanent"))
        return respond(await self._registry.write(decide))

    async def delete_version(self, request: web.Request) -> web.Response:
        subject, number, permanent = subject_of(request), version_of(request), has_flag(request, "permanent")

        def decide(state: RegistryState) -> tuple[int, list[SchemasRecord]]:
            chosen = number
            if number == LATEST:
                latest = state.version(subject, LATEST, with_deleted=permanent)
                if latest is None:
                    raise errors.subject_not_found(subject)
                chosen = latest.version
            return plan_version_deletion(state, subject, chosen, permanent=permanent)

        return respond(await self._registry.write(decide))


async def find_subjects(request: web.Request, state: RegistryState, prefix: str) -> AsyncIterator[str]:
    """Subjects with the prefix that the client may describe. Other tasks run in between, because
    there may be 100,000 subjects.
    """
    for number, subject in enumerate(list(state.subjects)):
        if number % SUBJECTS_PER_SLICE == 0:
            await asyncio.sleep(0)
        if subject in state.subjects and matches_prefix(subject, prefix) and request["may_describe"](subject):
            yield subject


def matches_prefix(subject: str, prefix: str) -> bool:
    """True if the subject's name begins with the prefix and its context matches. A prefix without a
    context matches subjects of the default context, one that begins with `:*:` those of every
    context."""
    if prefix.startswith(WILDCARD):
        return parse_subject(subject).name.startswith(prefix.removeprefix(WILDCARD))
    wanted, found = parse_subject(prefix), parse_subject(subject)
    return found.context == (wanted.context or DEFAULT_CONTEXT) and found.name.startswith(wanted.name)


def wants_only_deleted(request: web.Request) -> bool:
    return has_flag(request, "deletedOnly") or has_flag(request, "deleted_only")


def is_listed(state: RegistryState, subject: str, *, with_deleted: bool, only_deleted: bool) -> bool:
    """True if a list contains the subject. `with_deleted`: also subjects all of whose versions are
    soft-deleted. `only_deleted`: only these.
    """
    versions = state.subjects[subject].values()
    is_active = any(not version.deleted for version in versions)
    return not is_active if only_deleted else with_deleted or is_active
