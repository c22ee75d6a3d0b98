"""How an API file says what it serves.

An API's versions fall into forms: runs of versions that differ only in fields. Each form names the version its
handler is written in, the anchor; requests are converted up or down to it, and responses from it, before and after
the handler.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.message_schema import default_message, schema_of

Handler = Callable[[RequestContext, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Form:
    """Versions `low` to `high` (both served) of one API. `request` and `response` are kio's classes of the anchor
    version, and `handle` is `async (Context, request) -> response`. A KafkaError that leaves the handler becomes the
    response's top-level error code where there is one, and otherwise costs the connection: codes of topics and
    partitions are the handler's to place."""

    low: int
    high: int
    request: type
    response: type
    handle: Handler


def refusal(response: type, reason: KafkaError) -> object:
    """A response that says no, where its shape has one place for that; else the reason is raised on."""
    fields = {field.name for field in schema_of(response).all_fields}
    if "error_code" not in fields:
        raise reason
    empty = default_message(response)
    said = {"error_code": reason.code} | ({"error_message": reason.message} if "error_message" in fields else {})
    return response(**{name: said.get(name, getattr(empty, name)) for name in fields})
