"""The header `traceparent`, by the examples and rules of W3C Trace Context."""

import pytest

from ottla_broker.tracing.trace_context import TraceContext, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("value", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),  # a flag of level 2
        (f"cc-{TRACE}-{SPAN}-01", True),  # a version of the future
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
    ],
)
def test_valid_header_is_parsed_to_trace_span_and_flag(value: str, is_sampled: bool) -> None:
    expected = TraceContext(bytes.fromhex(TRACE), bytes.fromhex(SPAN), is_sampled)
    assert parse_traceparent(value.encode()) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",  # version 00 has four fields
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.",
    ],
)
def test_invalid_header_is_no_context(value: str) -> None:
    assert parse_traceparent(value.encode()) is None


def test_bytes_that_are_no_text_are_no_context() -> None:
    assert parse_traceparent(bytes(range(256))) is None
