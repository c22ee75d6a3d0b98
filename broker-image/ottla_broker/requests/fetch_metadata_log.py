"""Fetch (1) of the metadata log, versions 13–18: what `fetch` hands on when it is asked for that topic, by its id.

- Brokers copy the log by it, and with it tell how far their own goes; `metadata.quorum_leader` says what follows from that.
- A consumer is given what is committed, by any broker; what is secret in it is hidden (`metadata.hiding`).
"""

import asyncio
from asyncio import Future
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from kio.schema.fetch.v18.request import FetchRequest

from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID, MetadataFetchResponse
from ottla_broker.metadata.quorum_messages import build_fetch_response, parse_fetch_request
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.redaction import redact_secrets
from ottla_broker.requests.context import Buffers, RequestContext
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.codec import RequestHeader, read_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError


def fetch_metadata_log(context: RequestContext, frame: bytearray, header: RequestHeader) -> Future[Buffers]:
    request = read_request(bytes(frame), header, FetchRequest)
    work: Coroutine[Any, Any, Buffers] = _answer(context, header, request)
    return asyncio.get_running_loop().create_task(work)


async def _answer(context: RequestContext, header: RequestHeader, request: FetchRequest) -> Buffers:
    ask = parse_fetch_request(request)
    allowed = Resource.topic(METADATA_TOPIC) if ask.replica_id == CONSUMER_REPLICA_ID else Resource.cluster()
    wanted = Operation.read if ask.replica_id == CONSUMER_REPLICA_ID else Operation.cluster_action
    try:
        if not context.is_authorized(wanted, allowed):
            told = MetadataFetchResponse(ErrorCode.topic_authorization_failed)
        else:
            told = await context.broker.quorum.handle_fetch(ask)
            if ask.replica_id == CONSUMER_REPLICA_ID:
                told = replace(told, records=redact_secrets(told.records))
    except KafkaError as reason:
        told = MetadataFetchResponse(reason.code)
    return [write_response(header.api_key, header.version, header.correlation_id, build_fetch_response(told))]
