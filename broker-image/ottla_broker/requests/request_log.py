"""The fields by which log lines of one request are found."""

from collections.abc import Awaitable
from typing import TypeVar

from ottla_broker.log_format import log_fields
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey

T = TypeVar("T")


async def with_request_fields(context: RequestContext, work: Awaitable[T]) -> T:
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
