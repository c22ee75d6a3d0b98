"""The registry's HTTP server on `schema.registry.listener`: routes, and the steps of every request.

Each request is authenticated, authorized, and answered here or by the leader of `_schemas`.
"""

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.registry import errors
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.known_ids import KnownSchemaIds
from ottla_broker.registry.rest import requests
from ottla_broker.registry.rest.access import RegistryAccess
from ottla_broker.registry.rest.compatibility import CompatibilityApi
from ottla_broker.registry.rest.forwarding import APPLIED_OFFSET, FORWARDED_MARK, LeaderForwarder
from ottla_broker.registry.rest.schemas import SchemasApi
from ottla_broker.registry.rest.settings import SettingsApi
from ottla_broker.registry.rest.subjects import SubjectsApi
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.schemas_topic import NotLeader, SchemasTopic
from ottla_broker.registry.worker_process import SchemaWorker
from ottla_broker.requests.context import DONE
from ottla_broker.security.authorizer import Operation

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 16 << 20
SHUTDOWN_TIMEOUT_S: Final = 1.0
START_TIMEOUT_S: Final = 10.0
"""How long the server waits at most for the schemas to be read before it answers requests."""

RestHandler = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """`operation`: the operation that a client needs on the subject of the path, or else on the
    cluster; None if the handler authorizes, or nothing is required. `is_write`: only the leader
    answers.
    """

    method: str
    path: str
    handler: RestHandler
    operation: Operation | None = None
    is_write: bool = False

    @property
    def name(self) -> str:
        """The name of the operation in the audit log."""
        return f"{self.method} {self.path}"


class RegistryServer:
    """The HTTP server of this broker's registry. It sets `broker.schema_ids` to KnownSchemaIds."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._access = RegistryAccess(broker)
        self._topic = SchemasTopic(broker)
        self._worker = SchemaWorker()
        self._forwarder = LeaderForwarder(broker, self._topic)
        self._tasks = BackgroundTasks(broker.unrecoverable_errors.append)
        self.registry = SchemaRegistry(self._topic, self._worker)
        broker.schema_ids = KnownSchemaIds(self._topic)
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        for route in make_routes(self.registry):
            for prefix in ("", "/contexts/{context}"):
                app.router.add_route(route.method, prefix + route.path, self._serve(route))
        app.router.add_route("*", "/{path:.*}", self._refuse_unknown)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Serves the sockets once the schemas are read, or after START_TIMEOUT_S. Before that,
        responses would say that registered schemas do not exist.
        """
        self._tasks.start(self._read_topic())
        await self._broker.started.wait()
        await self._topic.wait_until_caught_up(START_TIMEOUT_S)
        await self._runner.setup()
        for each in sockets:
            await web.SockSite(self._runner, each, ssl_context=tls).start()

    async def _read_topic(self) -> None:
        await self._broker.started.wait()
        await self._topic.run()

    async def close(self) -> None:
        await self._runner.cleanup()
        await self._tasks.cancel()
        await self._topic.close()
        await self._forwarder.close()
        await self._worker.close()

    # -- requests

    def _serve(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                return await self._answer(route, request)
            except RegistryError as reason:
                return build_error_response(reason)
            except web.HTTPRequestEntityTooLarge:
                return build_error_response(RegistryError(42209, f"the request has more than {MAX_BODY_BYTES} bytes"))
            except Exception:
                logger.exception("failed to answer %s %s", request.method, request.path)
                return build_error_response(RegistryError(500, "Internal Server Error"))

        return serve

    async def _answer(self, route: Route, request: web.Request) -> web.Response:
        """Authenticates and authorizes the request, and answers or forwards it. Raises
        RegistryError.
        """
        if not self._broker.ready:
            raise RegistryError(503, "the broker is starting or stopping")
        principal, host = await self._access.authenticate(request), request.remote or ""
        request["may_describe"] = lambda subject: self._access.may(principal, host, Operation.describe, subject)
        subject = requests.subject_of(request) if "subject" in request.match_info else None
        if route.operation is not None:
            self._access.check(principal, host, route.operation, subject, route.name)
        is_forwarded = FORWARDED_MARK in request.headers
        response = await self._answer_or_forward(route, request, is_forwarded=is_forwarded)
        if route.is_write and route.operation is not None and not is_forwarded and response.status == 200:
            self._access.record(principal, host, route.operation, subject, route.name, DONE)
        return response

    async def _answer_or_forward(self, route: Route, request: web.Request, *, is_forwarded: bool) -> web.Response:
        """Answers here what this broker can answer; forwards the rest to the leader, unless another
        broker has forwarded it. Raises RegistryError.
        """
        try:
            if route.is_write and not is_forwarded:
                await self._topic.ensure_leader()
            response = await route.handler(request)
        except NotLeader as reason:
            if is_forwarded:
                raise errors.unknown_leader(f"the leader of the topic of schemas changes: {reason}") from None
            return await self._forwarder.forward(request, reason.leader)
        except RegistryError as reason:
            leader = self._topic.other_leader()
            if reason.status != 404 or route.is_write or is_forwarded or leader is None:
                raise
            return await self._forwarder.forward(request, leader)  # this broker may be a moment behind
        if route.is_write:
            response.headers[APPLIED_OFFSET] = str(self._topic.next_offset)
        return response

    async def _refuse_unknown(self, request: web.Request) -> web.Response:
        return build_error_response(RegistryError(404, "HTTP 404 Not Found"))


def build_error_response(reason: RegistryError) -> web.Response:
    response = requests.respond({"error_code": reason.code, "message": reason.message}, reason.status)
    if reason.status == 401:
        response.headers["WWW-Authenticate"] = 'Basic realm="schema registry"'
    return response


def make_routes(registry: SchemaRegistry) -> list[Route]:
    subjects, schemas = SubjectsApi(registry), SchemasApi(registry)
    checks, settings = CompatibilityApi(registry), SettingsApi(registry)
    describe, describe_configs, alter_configs = Operation.describe, Operation.describe_configs, Operation.alter_configs
    versions, by_id = "/subjects/{subject}/versions", "/schemas/ids/{id}"

    async def ok(request: web.Request) -> web.Response:
        return requests.respond({})

    async def cluster_id(request: web.Request) -> web.Response:
        return requests.respond({"scope": {"path": [], "clusters": {"schema-registry-cluster": "schema-registry"}}})

    return [
        Route("GET", "/", ok),
        Route("GET", "/v1/metadata/id", cluster_id),
        Route("GET", "/subjects", subjects.list_subjects),
        Route("POST", "/subjects/{subject}", subjects.look_up, describe),
        Route("DELETE", "/subjects/{subject}", subjects.delete_subject, Operation.delete, is_write=True),
        Route("GET", "/subjects/{subject}/metadata", subjects.get_by_metadata, describe),
        Route("GET", versions, subjects.list_versions, describe),
        Route("POST", versions, subjects.register, Operation.write, is_write=True),
        Route("GET", versions + "/{version}", subjects.get_version, describe),
        Route("GET", versions + "/{version}/schema", subjects.get_version_text, describe),
        Route("GET", versions + "/{version}/referencedby", subjects.list_referrers, describe),
        Route("DELETE", versions + "/{version}", subjects.delete_version, Operation.delete, is_write=True),
        Route("GET", "/schemas", schemas.list_schemas),
        Route("GET", "/schemas/types", schemas.list_types),
        Route("GET", by_id, schemas.get_schema),
        Route("GET", by_id + "/schema", schemas.get_schema_text),
        Route("GET", by_id + "/subjects", schemas.list_subjects),
        Route("GET", by_id + "/versions", schemas.list_versions),
        Route("GET", "/schemas/guids/{guid}", schemas.get_by_guid),
        Route("GET", "/schemas/guids/{guid}/ids", schemas.list_ids_of_guid),
        Route("POST", "/compatibility" + versions, checks.check_subject, describe),
        Route("POST", "/compatibility" + versions + "/{version}", checks.check_version, describe),
        Route("GET", "/config", settings.get_config, describe_configs),
        Route("PUT", "/config", settings.put_config, alter_configs, is_write=True),
        Route("DELETE", "/config", settings.delete_config, alter_configs, is_write=True),
        Route("GET", "/config/{subject}", settings.get_config, describe_configs),
        Route("PUT", "/config/{subject}", settings.put_config, alter_configs, is_write=True),
        Route("DELETE", "/config/{subject}", settings.delete_config, alter_configs, is_write=True),
        Route("GET", "/mode", settings.get_mode, describe_configs),
        Route("PUT", "/mode", settings.put_mode, alter_configs, is_write=True),
        Route("DELETE", "/mode", settings.delete_mode, alter_configs, is_write=True),
        Route("GET", "/mode/{subject}", settings.get_mode, describe_configs),
        Route("PUT", "/mode/{subject}", settings.put_mode, alter_configs, is_write=True),
        Route("DELETE", "/mode/{subject}", settings.delete_mode, alter_configs, is_write=True),
        Route("GET", "/contexts", settings.list_contexts),
    ]
