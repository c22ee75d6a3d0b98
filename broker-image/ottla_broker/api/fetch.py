"""Fetch (1), versions 4–18, of consumers and of followers.

- Returns whole batches as they are in the log, from the batch that holds the offset; the first
  batch is returned even above the size limits (rule 11). Limits: per partition, of the request, and
  `fetch.max.bytes`.
- With less than `min_bytes` of records, the request waits until an append adds enough or `max_wait`
  has passed. It does not wait when the limits leave records out, even if the rest is smaller than
  `min_bytes`.
- A read_committed consumer gets records before the last stable offset only, with the list of
  aborted transactions (rule 7).
- Followers (v17) read to the log's end and acknowledge by their offsets; a follower that knows a
  newer leader epoch than this broker waits for this broker's metadata. A replica id of −2 is a tool
  that compares replicas: any replica answers it.
- v7 has sessions (KIP-227), v9 leader epochs, v11 the nearest replica (KIP-392), v13 topic ids
  (rule 13), v16 current leaders (KIP-951)."""

import asyncio
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.config import (
    FETCH_MAX_BYTES,
    LEADER_REPLICATION_THROTTLED_RATE,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    REPLICA_SELECTOR_CLASS,
)
from ottla_broker.metadata.metadata_fetch import METADATA_TOPIC_ID
from ottla_broker.replication.fetch_reading import Reader, ReplicaReader, UnauthorizedReader
from ottla_broker.replication.fetch_response_cache import FetchResponseCache
from ottla_broker.replication.fetch_sessions import FetchSession, FetchSessionCache
from ottla_broker.replication.replica_selector import is_rack_aware
from ottla_broker.replication.throttle import Throttle
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.consumer_reader import ConsumerReader
from ottla_broker.requests.context import ChargedRequest, ConnectionState, RequestContext
from ottla_broker.requests.fetch_until_due import DelayedFetch, Fetch
from ottla_broker.requests.repeated_fetch import RepeatedFetch
from ottla_broker.requests.reply import Reply
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.fetch_request import CONSUMER, TOPIC_IDS_SINCE, FetchRequest, read_fetch_request
from ottla_broker.wire.fetch_response import write_fetch_response
from ottla_broker.wire.request_header import RequestHeader

API = Api(
    ApiKey.FETCH,
    versions=(4, 18),
    flexible=12,
    rights=(
        Right(Operation.read, ResourceType.topic, when="of consumers"),
        Right(
            Operation.cluster_action, ResourceType.cluster, when="of followers", refused="TOPIC_AUTHORIZATION_FAILED"
        ),
    ),
)

REPLICA_VERSION: Final = 17
MAX_REPLICA_BYTES: Final = 4 << 20  # as much as the loop can read and send between two requests of clients


class FetchHandler:
    """The handler, with the sessions and the last response that it remembers."""

    def __init__(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        self._is_rack_aware = is_rack_aware(broker.config(REPLICA_SELECTOR_CLASS))
        self.sessions = FetchSessionCache(
            lambda: broker.config(MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS),
            loop.time,
            broker.runtime.random.randrange,
            self._is_rack_aware,
        )
        self._response_cache = FetchResponseCache()
        self._throttle = Throttle(lambda: broker.config(LEADER_REPLICATION_THROTTLED_RATE), loop.time)
        self._loop = loop

    def __call__(
        self, context: RequestContext, frame: bytearray, header: RequestHeader, max_response_bytes: int
    ) -> Reply:
        repeated = self.repeat(frame, context.connection, max_response_bytes, context.quota, context.trace)
        if repeated is not None:
            return repeated
        request = read_fetch_request(frame, header)
        if request.partitions and request.partitions[0].topic == METADATA_TOPIC_ID:
            # Imported here: a broker that is alone never needs it, and so starts faster.
            from ottla_broker.requests.fetch_metadata_log import fetch_metadata_log

            return fetch_metadata_log(context, frame, header)
        try:
            session, incremental = self.sessions.session_for(request, by_ids=header.version >= TOPIC_IDS_SINCE)
        except KafkaError as reason:
            return write_fetch_response(header.version, header.correlation_id, (), error=reason.code)
        if request.replica >= 0:
            reader = self._replica_reader(context, header.version, session)
            fetch = Fetch(context, header.correlation_id, request, session, reader, True, self.sessions.end)
            fetch.limit = min(request.max_bytes, MAX_REPLICA_BYTES)
            return self._respond(fetch)
        if session.id and not context.authorizer.allows_everything:
            session.read_as((context.connection.principal, context.connection.host, context.authorizer.generation))
        consumer = ConsumerReader(context, request, self._is_rack_aware)
        fetch = Fetch(context, header.correlation_id, request, session, consumer, incremental, self.sessions.end)
        fetch.limit = self._consumer_limit(context, request, max_response_bytes)
        if not session.id and len(request.partitions) == 1 and request.replica == CONSUMER:
            context.connection.last_fetch = RepeatedFetch(frame, fetch)
            if not self._is_rack_aware:
                fetch.response_cache = self._response_cache
        return self._respond(fetch)

    def repeat(
        self,
        frame: bytearray,
        connection: ConnectionState,
        max_response_bytes: int,
        quota: ChargedRequest | None = None,
        trace: RequestTrace | None = None,
    ) -> Reply:
        """The reply to a request that differs from the last one of its connection only in its
        offset and correlation id. None to any other request, and while the last one still waits.
        """
        last = connection.last_fetch
        if not isinstance(last, RepeatedFetch) or (fetch := last.restart(frame)) is None:
            return None
        context = fetch.context
        context.correlation_id, context.quota, context.trace = fetch.correlation_id, quota, trace
        fetch.limit = self._consumer_limit(context, fetch.request, max_response_bytes)
        return self._respond(fetch)

    def _replica_reader(self, context: RequestContext, version: int, session: FetchSession) -> Reader:
        if not (context.authorizer.allows_everything or context.is_authorized(Operation.cluster_action, CLUSTER)):
            return UnauthorizedReader()
        context.connection.is_follower = version == REPLICA_VERSION
        return ReplicaReader(context.broker.partitions, session, self._throttle)

    def _consumer_limit(self, context: RequestContext, request: FetchRequest, max_response_bytes: int) -> int:
        return min(request.max_bytes, context.broker.config(FETCH_MAX_BYTES), max_response_bytes)

    def _respond(self, fetch: Fetch) -> Reply:
        response = fetch.response_if_due()
        if response is not None:
            return response
        if fetch.can_wait():
            return DelayedFetch(fetch, self._loop).response
        return fetch.response(expired=True)
