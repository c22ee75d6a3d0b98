"""Fetch (1) of the metadata log, versions 13–18: `api.fetch` passes requests for that topic's id
here.

- With this request brokers copy the log, and report their own log's end to the leader
  (`metadata.leader_state`). A voter serves committed records to observers
  (`metadata.observer_fetches`).
- A consumer gets committed records from any broker, with secrets redacted (`metadata.redaction`).
"""

import asyncio
from asyncio import Future

from kio.schema.fetch.v18.request import FetchRequest
from msgspec.structs import replace

from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID, MetadataFetchResponse
from ottla_broker.metadata.quorum_messages import build_fetch_response, parse_fetch_request
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.redaction import redact_secrets
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.reply import Buffers
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.wire.codec import read_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.request_header import RequestHeader


def fetch_metadata_log(ctx: RequestContext, frame: bytearray, header: RequestHeader) -> Future[Buffers]:
    """Raises MalformedMessage."""
    request: FetchRequest = read_request(bytes(frame), header, FetchRequest)
    return asyncio.get_running_loop().create_task(_respond(ctx, header, request))


async def _respond(ctx: RequestContext, header: RequestHeader, request: FetchRequest) -> Buffers:
    try:
        response = await _fetch(ctx, request)
    except KafkaError as error:
        response = MetadataFetchResponse(error.code)
    return [write_response(header.api_key, header.version, header.correlation_id, build_fetch_response(response))]


async def _fetch(ctx: RequestContext, request: FetchRequest) -> MetadataFetchResponse:
    fetch = parse_fetch_request(request)
    is_consumer = fetch.replica_id == CONSUMER_REPLICA_ID
    operation = Operation.read if is_consumer else Operation.cluster_action
    if not ctx.is_authorized(operation, Resource.topic(METADATA_TOPIC) if is_consumer else CLUSTER):
        raise KafkaError(ErrorCode.topic_authorization_failed)
    response = await ctx.broker.quorum.handle_fetch(fetch)
    return replace(response, records=redact_secrets(response.records)) if is_consumer else response
