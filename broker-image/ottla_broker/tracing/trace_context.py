"""The header `traceparent` of a record: W3C Trace Context, https://www.w3.org/TR/trace-context."""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_INVALID_VERSION: Final = b"ff"
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """The ids of a span, of this broker or of another program. `trace_id`: 16 bytes; `span_id`: 8
    bytes; `is_sampled`: the trace is recorded.
    """

    trace_id: bytes
    span_id: bytes
    is_sampled: bool


def parse_traceparent(value: bytes) -> TraceContext | None:
    """None for a value that the specification calls invalid. Versions after 00 may have more
    fields.
    """
    found = _FORM.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _INVALID_VERSION or (version == b"00" and more is not None):
        return None
    context = TraceContext(
        bytes.fromhex(trace_id.decode()), bytes.fromhex(span_id.decode()), bool(int(flags, 16) & _SAMPLED)
    )
    return context if any(context.trace_id) and any(context.span_id) else None
