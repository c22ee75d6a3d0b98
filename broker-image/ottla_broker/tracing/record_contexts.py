"""The traces that the records of a Produce request belong to, by their headers `traceparent`.

The work for a request is bounded: only its first MAX_BATCHES batches are read, and of each batch
only the first MAX_RECORDS records. A batch of more than MAX_BATCH_BYTES, compressed or
decompressed, is left out.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ottla_broker.tracing.trace_context import TRACEPARENT, TraceContext, parse_traceparent
from ottla_broker.wire.batch import HEADER_SIZE, parse_batch_header
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import decompress_records, iter_record_spans, parse_headers

MAX_BATCHES: Final = 8
MAX_RECORDS: Final = 64
MAX_BATCH_BYTES: Final = 64 << 10
MAX_CONTEXTS: Final = 32


def find_contexts(batches: Iterable[memoryview | None]) -> list[TraceContext]:
    """The different contexts of sampled traces, in the order of the records; at most
    MAX_CONTEXTS.
    """
    found: dict[TraceContext, None] = {}
    for batch in islice(batches, MAX_BATCHES):
        if batch is not None and HEADER_SIZE <= len(batch) <= MAX_BATCH_BYTES:
            for context in _contexts_of_batch(batch):
                found[context] = None
    return list(found)[:MAX_CONTEXTS]


def _contexts_of_batch(batch: memoryview) -> list[TraceContext]:
    """Nothing of a batch whose records do not parse: the log accepts it without parsing them."""
    header = parse_batch_header(batch)
    try:
        payload = decompress_records(batch, header, limit=MAX_BATCH_BYTES)
        if TRACEPARENT.encode() not in payload:
            return []
        spans = islice(iter_record_spans(payload, header.count), MAX_RECORDS)
        headers = [parse_headers(payload, at, end) for _, end, *_, at in spans if at]
    except KafkaError:
        return []
    contexts = [
        parse_traceparent(value)
        for record in headers
        for name, value in record
        if name == TRACEPARENT and value is not None
    ]
    return [one for one in contexts if one is not None and one.is_sampled]
