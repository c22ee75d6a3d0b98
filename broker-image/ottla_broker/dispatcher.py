"""From a request's bytes to its handler, and back to a response's bytes."""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from typing import Any, Final

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.api.produce import produce
from ottla_broker.broker import Broker
from ottla_broker.log_format import is_json, log_fields
from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.metrics import API_KEY_LIMIT
from ottla_broker.request_times import RequestTimes
from ottla_broker.requests.api import Handler, find_api, find_handler, respond
from ottla_broker.requests.audited_changes import AUDITED, record_changes
from ottla_broker.requests.context import CloseConnection, ConnectionState, FrameHandler, RequestContext
from ottla_broker.requests.login import respond_to_token
from ottla_broker.requests.reply import Buffers, Reply
from ottla_broker.requests.request_quota import RequestQuota
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.requests.timed_coroutine import TimedCoroutine
from ottla_broker.same_turn import SameTurnTask
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.security.sasl_session import SaslSession
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_request, read_response, response_class, write_response
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import CONSUMER, read_fetch_request
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.request_header import RequestHeader

FETCH: Final = int(ApiKey.FETCH)
ALLOW_ALL: Final = AllowAll()
LOGIN_APIS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
UNLIMITED: Final = frozenset(
    {
        *LOGIN_APIS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""Requests of brokers, and logins: no client quota applies."""
MUTATIONS: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
"""Requests that the controller throttles."""
FAST_PATH_APIS: Final = frozenset(
    {ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
)
"""Requests of group members, which arrive many at a time: `_find_fast_path` answers most of
them."""


class RequestDispatcher:
    """Serves the requests of all connections. One per broker, on the running loop.

    `request_counts`: requests received, by API key. `request_times`: how long they took.
    """

    def __init__(self, broker: Broker) -> None:
        self.request_counts = [0] * API_KEY_LIMIT
        self.request_times = RequestTimes(broker.runtime.processing_clock)
        self._broker = broker
        self._authorizer = broker.authorizer
        self._client_quotas = broker.client_quotas
        self._processing_clock = broker.runtime.processing_clock
        self._fetch = FetchHandler(broker)
        self._frame_handlers: dict[int, FrameHandler] = {ApiKey.PRODUCE: produce, ApiKey.FETCH: self._fetch}
        self._tasks: dict[asyncio.Task[Buffers], None] = {}
        self._loop = asyncio.get_running_loop()

    def must_wait_for_start(self, frame: bytearray, header: RequestHeader, listener: str) -> bool:
        """True while the broker starts, except for requests that other brokers need to start, and
        for logins on the inter-broker listener. Raises MalformedMessage.
        """
        if self._broker.ready:
            return False
        if header.api_key == FETCH:
            return read_fetch_request(frame, header).replica == CONSUMER
        if header.api_key in LOGIN_APIS:
            return listener != self._broker.config.inter_broker_listener
        api = find_api(header.api_key)
        return api is None or not api.is_served_while_starting

    def dispatch(
        self,
        frame: bytearray,
        header: RequestHeader,
        connection: ConnectionState,
        max_response_bytes: int,
        trace: RequestTrace | None = None,
    ) -> Reply:
        """The response with its size in front, a future of one, or None where the client expects
        none. `max_response_bytes`: memory for the records of a Fetch response.

        Raises MalformedMessage and CloseConnection.
        """
        key, version = header.api_key, header.version
        if 0 <= key < API_KEY_LIMIT:
            self.request_counts[key] += 1
        if connection.sasl is not None and not connection.sasl.may_send(key):
            raise CloseConnection(f"API key {key} is served to authenticated clients only")
        context = RequestContext(
            self._broker,
            connection,
            version,
            header.client_id,
            self._authorizer,
            None,
            key,
            header.correlation_id,
            trace,
        )
        quota = None
        if self._client_quotas.is_active:
            quota = context.quota = self._find_quota(header, connection)
        frame_handler = self._frame_handlers.get(key)
        if frame_handler is not None and _is_served(key, version):
            if quota is not None:
                if key == FETCH and (allowed := quota.max_fetch_bytes()) is not None:
                    max_response_bytes = min(max_response_bytes, allowed)
                return self._handle_timed(frame_handler, context, frame, header, max_response_bytes, quota)
            return frame_handler(context, frame, header, max_response_bytes)
        handler = find_handler(key, version)
        if handler is not None:
            if key in FAST_PATH_APIS:
                if quota is not None:
                    connection.last_heartbeat = None
                elif (reply := _find_fast_path(key)(context, header, frame)) is not None:
                    return reply
            request = read_request(bytes(frame), header, handler.request)
            api = find_api(key)
            if api is not None and api.is_forwarded and self._broker.controller is None:
                work = self._forward(handler, context, header, request, frame, quota)
            else:
                work = _handle(handler, context, header, request, quota)
            if is_json():
                return self._run(_with_request_fields(context, work), quota)
            return self._run_at_once(work, quota) if api is not None and api.starts_no_task else self._run(work, quota)
        if key == ApiKey.API_VERSIONS:  # rule 16: a newer client learns from version 0 which versions are served
            from ottla_broker.api.api_versions import api_versions_response

            response = api_versions_response(ErrorCode.unsupported_version)
            return [write_response(key, 0, header.correlation_id, response)]
        raise MalformedMessage(f"no such request: API key {key}, version {version}")

    def repeat_fetch(self, frame: bytearray, connection: ConnectionState, max_response_bytes: int) -> Reply:
        """The reply to a fetch that repeats the last one of its connection, without reading its
        header. None where `dispatch` must decide.
        """
        if self._client_quotas.is_active or not self._broker.ready:
            return None
        if connection.sasl is not None and not connection.sasl.may_send(ApiKey.FETCH):
            return None
        reply = self._fetch.repeat(frame, connection, max_response_bytes)
        if reply is not None:
            self.request_counts[ApiKey.FETCH] += 1
        return reply

    def repeat_heartbeat(self, frame: bytearray, connection: ConnectionState) -> Reply:
        """The reply to a request that is known to repeat the last heartbeat of its connection,
        without reading its header. None where `dispatch` must decide.
        """
        last = connection.last_heartbeat
        if last is None or self._client_quotas.is_active or not self._broker.ready:
            return None
        if connection.sasl is not None and not connection.sasl.may_send(last.key):
            return None
        reply = last.repeat(frame)
        if reply is not None:
            self.request_counts[last.key] += 1
        return reply

    def authenticate(self, token: bytearray, connection: ConnectionState, session: SaslSession) -> Reply:
        """The response to a bare token, which follows a SaslHandshake of version 0. A failure
        closes the connection.
        """

        context = RequestContext(self._broker, connection, 0, None, self._authorizer, api_key=ApiKey.SASL_AUTHENTICATE)

        async def respond_or_close() -> Buffers:
            try:
                response = await respond_to_token(context, session, bytes(token))
            except KafkaError as error:
                raise CloseConnection(f"login failed: {error}") from error
            return [len(response).to_bytes(4) + response]

        return self._run(respond_or_close())

    async def close(self) -> None:
        """Cancels the handlers that are still running."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _find_quota(self, header: RequestHeader, connection: ConnectionState) -> RequestQuota | None:
        if header.api_key in UNLIMITED or connection.is_follower:
            return None
        quotas = self._client_quotas.of_client(connection.principal.name, header.client_id or "")
        return None if quotas.is_unlimited else RequestQuota(self._client_quotas, quotas, connection)

    def _handle_timed(
        self,
        handle: FrameHandler,
        context: RequestContext,
        frame: bytearray,
        header: RequestHeader,
        max_response_bytes: int,
        quota: RequestQuota,
    ) -> Reply:
        began_s = self._processing_clock()
        try:
            return handle(context, frame, header, max_response_bytes)
        finally:
            quota.charge_processing(self._processing_clock() - began_s)

    def _run(self, work: Coroutine[Any, Any, Buffers], quota: RequestQuota | None = None) -> Future[Buffers]:
        """Runs a handler to its end even if its connection closes: others may depend on what it
        began.
        """
        task = self._loop.create_task(self._charge_steps(work, quota))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _run_at_once(self, work: Coroutine[Any, Any, Buffers], quota: RequestQuota | None) -> Reply:
        """Like `_run`, without a task, for an API with `starts_no_task`."""
        run = SameTurnTask(self._charge_steps(work, quota), loop=self._loop)
        if not run.done():
            return run
        try:
            return run.result()
        except KafkaError as error:
            raise CloseConnection(str(error)) from error

    def _charge_steps(
        self, work: Coroutine[Any, Any, Buffers], quota: RequestQuota | None
    ) -> Coroutine[Any, Any, Buffers]:
        return work if quota is None else TimedCoroutine(work, self._processing_clock, quota.charge_processing)

    async def _forward(
        self,
        handler: Handler,
        context: RequestContext,
        header: RequestHeader,
        request: Any,
        frame: bytearray,
        quota: RequestQuota | None,
    ) -> Buffers:
        """The active controller's response. Without one, this broker's own: NOT_CONTROLLER in the
        API's form.
        """
        if context.connection.software_name == FORWARDING_SOFTWARE_NAME:
            raise CloseConnection("another broker forwarded a request to this one, which is not the controller")
        try:
            client = context.connection
            forwarded = await self._broker.controller_channel.forward_frame(frame, client.principal, client.host)
        except KafkaError:
            forwarded = None
        if forwarded is None:
            return await _handle(handler, context, header, request, quota)
        may_be_throttled = quota is not None and (quota.throttle_ms or header.api_key in MUTATIONS)
        if not may_be_throttled and header.api_key not in AUDITED:
            return [forwarded]
        response = read_response(bytes(forwarded[4:]), header.api_key, header.version)
        record_changes(context, request, response)
        if quota is not None and may_be_throttled:
            throttled = quota.with_throttle_time(response)
            return [write_response(header.api_key, header.version, header.correlation_id, throttled)]
        return [forwarded]


async def answer_locally(broker: Broker, request: Any, authorizer: Authorizer = ALLOW_ALL) -> Any:
    """The response to a request of the broker itself, in the request's version, as if it came over
    a connection.

    Used while the broker is the controller that it sends requests to. Raises KafkaError where the
    response has no place for an error code.
    """
    key, version = int(request.__api_key__), int(request.__version__)
    handler = find_handler(key, version)
    assert handler is not None, f"{type(request).__name__} is not served in version {version}"
    connection = ConnectionState("in-process", 0, broker.config.inter_broker_listener)
    context = RequestContext(broker, connection, version, None, authorizer)
    response = await respond(handler, context, convert_message(request, handler.request))
    return convert_message(response, response_class(key, version))


async def _handle(
    handler: Handler, context: RequestContext, header: RequestHeader, request: Any, quota: RequestQuota | None
) -> Buffers:
    response = await respond(handler, context, request)
    record_changes(context, request, response)
    if quota is not None and (quota.throttle_ms or header.api_key in MUTATIONS):
        response = quota.with_throttle_time(response)
    return [write_response(header.api_key, header.version, header.correlation_id, response)]


async def _with_request_fields(context: RequestContext, work: Awaitable[Buffers]) -> Buffers:
    """Awaits the work. Its log lines have the request's name and correlation id, and the client's
    id, principal and address.
    """
    client = context.connection
    with log_fields(
        request=ApiKey(context.api_key).title,
        correlationId=context.correlation_id,
        clientId=context.client_id,
        principal=str(client.principal),
        host=client.host,
    ):
        return await work


@cache
def _find_fast_path(key: int) -> Callable[[RequestContext, RequestHeader, bytearray], Reply]:
    """The function that answers most requests of an API of FAST_PATH_APIS without the API's
    handler, and returns None for the others. Imported with the first request.
    """
    if key == ApiKey.HEARTBEAT:
        from ottla_broker.requests.repeated_classic_heartbeat import repeat_classic_heartbeat

        return repeat_classic_heartbeat
    if key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        from ottla_broker.requests.repeated_heartbeat import repeat_heartbeat

        return repeat_heartbeat
    from ottla_broker.requests.classic_rebalance import answer_join_group, answer_sync_group

    return answer_join_group if key == ApiKey.JOIN_GROUP else answer_sync_group


def _is_served(key: int, version: int) -> bool:
    first, last = SERVED_VERSIONS[key]
    return first <= version <= last
