"""Hypothesis strategies for records, and small builders of batches."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from ottla_broker.wire.batch import Compression, parse_batch_header
from ottla_broker.wire.batch import pack_batch as pack
from ottla_broker.wire.records import Record, encode_batch, write_record

codecs = st.sampled_from(list(Compression))
fields = st.none() | st.binary(max_size=40) | st.binary(min_size=1, max_size=3).map(lambda few: few * 700)
headers = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=200)), max_size=4).map(tuple)
timestamps_ms = st.integers(0, 2**41)
records = st.builds(Record, timestamps_ms, fields, fields, headers)
record_lists = st.lists(records, min_size=1, max_size=20)


def sparse_batch(kept: Sequence[tuple[int, Record]], *, count: int, base_offset: int) -> bytes:
    """A batch of `count` offsets of which compaction has kept only these records, each with its
    offset delta.
    """
    whole = parse_batch_header(encode_batch([record for _, record in kept], base_offset=base_offset))
    payload = bytearray()
    for delta, record in kept:
        write_record(payload, record, record.timestamp_ms - whole.base_timestamp, delta)
    return pack(replace(whole, last_offset_delta=count - 1), payload)


def with_offsets(given: Sequence[Record], base_offset: int = 0) -> list[Record]:
    """The records with consecutive offsets."""
    return [replace(record, offset=base_offset + n) for n, record in enumerate(given)]
