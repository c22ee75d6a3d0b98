"""/config, /mode and /contexts: settings and modes of subjects, contexts and the whole registry."""

from functools import partial

from aiohttp import web

from ottla_broker.registry import errors
from ottla_broker.registry.modes import Mode, mode_of, parse_mode, plan_mode, plan_mode_removal
from ottla_broker.registry.record_format import SchemasRecord
from ottla_broker.registry.rest import requests
from ottla_broker.registry.rest.requests import has_flag, respond, select_page
from ottla_broker.registry.schema import JsonObject
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.settings import describe_config, plan_config, plan_config_removal
from ottla_broker.registry.state import RegistryState
from ottla_broker.registry.subject_names import DEFAULT_CONTEXT, SubjectName


def scope_of(request: web.Request) -> str | None:
    """The subject of the path, else its context, else None for the whole registry."""
    if "subject" in request.match_info:
        return requests.subject_of(request)
    context = requests.path_context(request)
    return None if context == DEFAULT_CONTEXT else str(SubjectName(context, ""))


class SettingsApi:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    # -- config

    async def get_config(self, request: web.Request) -> web.Response:
        scope = scope_of(request)
        return respond(describe_config(self._registry.state, scope, with_defaults=has_flag(request, "defaultToGlobal")))

    async def put_config(self, request: web.Request) -> web.Response:
        scope, wanted = scope_of(request), await requests.read_object(request)
        await self._registry.write(lambda state: (None, plan_config(state, scope, wanted)))
        if isinstance(level := wanted.get("compatibility"), str):
            wanted["compatibility"] = level.upper()
        return respond(wanted)

    async def delete_config(self, request: web.Request) -> web.Response:
        decide = partial(plan_config_removal, subject=scope_of(request))
        return respond(await self._registry.write(decide))

    # -- mode

    async def get_mode(self, request: web.Request) -> web.Response:
        scope, state = scope_of(request), self._registry.state
        if scope is not None and scope not in state.modes and not has_flag(request, "defaultToGlobal"):
            raise errors.mode_not_configured(scope)
        own = state.modes.get(scope)
        return respond({"mode": own if own is not None else mode_of(state, scope)})

    async def put_mode(self, request: web.Request) -> web.Response:
        scope, wanted = scope_of(request), await requests.read_object(request)
        mode, force = parse_mode(wanted.get("mode")), has_flag(request, "force")
        await self._registry.write(lambda state: (None, plan_mode(state, scope, mode, force=force)))
        return respond({"mode": mode})

    async def delete_mode(self, request: web.Request) -> web.Response:
        scope = scope_of(request)

        def decide(state: RegistryState) -> tuple[JsonObject, list[SchemasRecord]]:
            before = state.modes.get(scope, Mode.readwrite)
            return {"mode": before}, plan_mode_removal(state, scope)

        return respond(await self._registry.write(decide))

    # -- contexts

    async def list_contexts(self, request: web.Request) -> web.Response:
        return respond(select_page(request, sorted(self._registry.state.contexts)))
