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

from ottla_broker.api.context import Buffers, Context
from ottla_broker.metadata.fetch_messages import ask_of, response_of
from ottla_broker.metadata.fetching import CONSUMER, Told
from ottla_broker.metadata.hiding import hidden
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.codec import RequestHeader, read_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError


def fetch_metadata_log(context: Context, frame: bytearray, header: RequestHeader) -> Future[Buffers]:
    request = read_request(bytes(frame), header, FetchRequest)
    work: Coroutine[Any, Any, Buffers] = _answer(context, header, request)
    return asyncio.get_running_loop().create_task(work)


async def _answer(context: Context, header: RequestHeader, request: FetchRequest) -> Buffers:
    ask = ask_of(request)
    allowed = Resource.topic(METADATA_TOPIC) if ask.replica == CONSUMER else Resource.cluster()
    wanted = Operation.read if ask.replica == CONSUMER else Operation.cluster_action
    try:
        if not context.may(wanted, allowed):
            told = Told(ErrorCode.topic_authorization_failed)
        else:
            told = await context.broker.quorum.answer(ask)
            if ask.replica == CONSUMER:
                told = replace(told, records=hidden(told.records))
    except KafkaError as reason:
        told = Told(reason.code)
    return [write_response(header.api_key, header.version, header.correlation_id, response_of(told))]
