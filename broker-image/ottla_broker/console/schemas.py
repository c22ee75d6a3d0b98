"""The pages of schemas: the list of subjects, one subject with its versions, and the check of a
schema's compatibility.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.access import ConsoleUser
from ottla_broker.console.login import read_page_form
from ottla_broker.console.paging import cut_page
from ottla_broker.console.registry_access import NO_REGISTRY, load_registry, may_describe_subject, may_on_subject
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.text_diff import DiffLine, compare_lines
from ottla_broker.console.topic_list import matches
from ottla_broker.registry.compatibility import level_of
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.registry.registrations import plan_check
from ottla_broker.registry.schema import SCHEMA_TYPES, Schema, SchemaType
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import topic_of
from ottla_broker.security.authorizer import Operation

SUBJECTS_PER_SLICE: Final = 1000
"""Subjects that a slice visits before other tasks may run."""


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """`versions`: number of versions that are not deleted."""

    name: str
    versions: int
    latest: SchemaVersion


@dataclass(frozen=True, slots=True)
class SubjectLevel:
    """The compatibility level of a subject. `name`: empty if the user may not see it. `is_own`: it
    is set for the subject itself.
    """

    name: str = ""
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """The check of a schema that the user has entered. `refusal`: the reasons why it is invalid or
    incompatible; empty: it is neither. `checked`: the versions that it was compared with.
    """

    type: str
    text: str
    refusal: tuple[str, ...] = ()
    checked: tuple[int, ...] = ()


class SchemaPages:
    """Users see the subjects whose topics they may describe."""

    def __init__(self, broker: Broker, registry: LazyRegistry | None) -> None:
        self._broker = broker
        self._registry = registry

    async def show_list(self, page: PageRequest) -> web.Response:
        if self._registry is None:
            return page.render("schemas_missing.html", reason=NO_REGISTRY)
        state, search = (await load_registry(self._registry)).state, page.text("search")
        names = await find_subjects(state, search, page.user)
        subjects = cut_page(names, page.integer("page", 1, at_least=1))
        template = "schema_rows.html" if page.wants_fragment else "schemas.html"
        rows = [row for name in subjects.rows if (row := describe_subject(state, name)) is not None]
        return page.render(template, subjects=subjects, rows=rows, search=search)

    async def show_subject(self, page: PageRequest) -> web.Response:
        registry = await load_registry(self._registry)
        subject = page.http.query.get("subject", "")  # not in the path: it may have any characters
        return await self._render(page, registry, subject, None)

    async def check(self, page: PageRequest) -> web.Response:
        """Shows whether the schema of a form is valid and compatible. Registers nothing."""
        form = await read_page_form(page.http, page.user.form_token)
        registry, subject = await load_registry(self._registry), form.get("name", "")
        find_versions(registry.state, subject, page)
        schema = Schema(form.get("type", ""), form.get("schema", ""))
        return await self._render(page, registry, subject, await check_schema(registry, subject, schema))

    async def _render(
        self, page: PageRequest, registry: SchemaRegistry, subject: str, check: SchemaCheck | None
    ) -> web.Response:
        state = registry.state
        versions = find_versions(state, subject, page)
        shown = choose_version(versions, page.integer("version", versions[-1].version))
        before = [one for one in versions if one.version < shown.version]
        against = None
        if before:
            against = choose_version(before, page.integer("against", before[-1].version))
        diff, problem = [], ""
        if against is not None:
            try:
                diff = await self._broker.runtime.run_in_thread(compare_schemas, against.schema, shown.schema)
            except ValueError as reason:
                problem = str(reason)
        topic = topic_of(subject)
        return page.render(
            "subject.html",
            subject=subject,
            versions=versions,
            shown=shown,
            text="\n".join(format_schema(shown.schema)),
            before=before,
            against=against,
            diff=diff,
            diff_problem=problem,
            level=describe_level(state, subject, page.user),
            referrers=[
                one for one in state.referrers(subject, shown.version) if may_describe_subject(page.user, one.subject)
            ],
            topic=topic if topic in self._broker.image.topics else None,
            types=SCHEMA_TYPES,
            check=check,
        )


async def find_subjects(state: RegistryState, search: str, user: ConsoleUser) -> list[str]:
    """Names of subjects that match the search and that the user may describe, in alphabetical
    order. Other tasks run in between.
    """
    words, found = search.lower().split(), []
    for number, name in enumerate(sorted(state.subjects)):
        if number % SUBJECTS_PER_SLICE == SUBJECTS_PER_SLICE - 1:
            await asyncio.sleep(0)
        if matches(name, words) and may_describe_subject(user, name) and state.versions(name):
            found.append(name)
    return found


def describe_subject(state: RegistryState, name: str) -> SubjectRow | None:
    """None if the subject was deleted meanwhile."""
    versions = state.versions(name)
    return SubjectRow(name, len(versions), versions[-1]) if versions else None


def find_versions(state: RegistryState, subject: str, page: PageRequest) -> list[SchemaVersion]:
    """The versions of a subject in ascending order, at least one. Raises PageError, the same for a
    subject that does not exist and for one that the user may not describe.
    """
    versions = state.versions(subject) if may_describe_subject(page.user, subject) else []
    if not versions:
        raise PageError(404, f"There is no subject {subject!r} that {page.user.principal} may describe.")
    return versions


def choose_version(versions: Sequence[SchemaVersion], number: int) -> SchemaVersion:
    """The version with that number. Raises PageError."""
    for version in versions:
        if version.version == number:
            return version
    raise PageError(404, f"There is no version {number}; versions: {', '.join(str(it.version) for it in versions)}.")


def describe_level(state: RegistryState, subject: str, user: ConsoleUser) -> SubjectLevel:
    if not may_on_subject(user, Operation.describe_configs, subject):
        return SubjectLevel()
    return SubjectLevel(str(level_of(state, subject)), "compatibilityLevel" in state.configs.get(subject, {}))


def format_schema(schema: Schema) -> list[str]:
    """The lines of a schema's text. JSON is indented, and keeps the order of its keys."""
    if schema.type == SchemaType.protobuf:
        return schema.text.splitlines()
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False).splitlines()
    except (ValueError, RecursionError):
        return schema.text.splitlines()


def compare_schemas(old: Schema, new: Schema) -> list[DiffLine]:
    """Raises ValueError for schemas that are too long."""
    return compare_lines(format_schema(old), format_schema(new))


async def check_schema(registry: SchemaRegistry, subject: str, schema: Schema) -> SchemaCheck:
    """Checks that a schema is valid and compatible as its registration would, without registering
    it. The mode of the subject, in which registration may be refused, is not checked.
    """
    try:
        parsed = await registry.parse_schema(subject, schema)
        plan = plan_check(registry.state, subject, parsed)
        found = await registry.find_incompatibilities(subject, parsed, plan.level, plan.versions)
    except RegistryError as reason:
        return SchemaCheck(schema.type, schema.text, (reason.message,))
    return SchemaCheck(schema.type, schema.text, tuple(found), tuple(one.version for one in plan.versions))
