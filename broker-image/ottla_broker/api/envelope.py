"""Envelope (58), version 0: a client's request that another broker passes on to the active
controller (KIP-590).

- Holds the request as the client sent it, the client's principal and its address: the controller
  authorizes the client, not the broker that passes it on. Only brokers (CLUSTER_ACTION) may send
  it: any other sender could act as any client.
- Of the requests inside, only those that the controller alone answers are served; others, and
  malformed ones, are INVALID_REQUEST.
- Kafka's brokers send it in the same form. The principal is Kafka's DefaultPrincipalData.
"""

from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.envelope.v0.response import EnvelopeResponse

from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.requests.api import CLUSTER_ACTION, Api, find_api, find_handler, respond
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.forwarding import read_host, read_principal
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.request_header import read_request_header

API = Api(ApiKey.ENVELOPE, versions=(0, 0), flexible=0, rights=(CLUSTER_ACTION,))


@API.handler()
async def envelope(ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    if request.request_principal is None:
        raise KafkaError(ErrorCode.principal_deserialization_failure)
    ctx.broker.active_controller()
    try:
        header = read_request_header(request.request_data)
        api, handler = find_api(header.api_key), find_handler(header.api_key, header.version)
        if api is None or handler is None or not api.is_forwarded:
            raise KafkaError(ErrorCode.invalid_request)
        principal = Principal(*read_principal(request.request_principal))
        message = read_request(request.request_data, header, handler.request)
    except MalformedMessage as reason:
        raise KafkaError(ErrorCode.invalid_request, str(reason)) from reason
    client = ConnectionState(
        read_host(request.client_host_address),
        0,
        ctx.connection.listener,
        principal,
        software_name=FORWARDING_SOFTWARE_NAME,
    )
    inner = RequestContext(
        ctx.broker,
        client,
        header.version,
        header.client_id,
        ctx.authorizer,
        api_key=header.api_key,
        correlation_id=header.correlation_id,
    )
    response = await respond(handler, inner, message)
    data = write_response(header.api_key, header.version, header.correlation_id, response)
    return EnvelopeResponse(response_data=bytes(data[4:]), error_code=ErrorCode.none)
