"""How an API file says what it serves.

An API's versions fall into forms: runs of versions that differ only in fields. Each form names the version its
handler is written in, the anchor; requests are converted up or down to it, and responses from it, before and after
the handler.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ottla_broker.api.context import Context

Handler = Callable[[Context, Any], Awaitable[Any]]


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
