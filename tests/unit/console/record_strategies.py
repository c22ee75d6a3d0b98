"""Hypothesis strategies for records of any bytes."""

from hypothesis import strategies as st

from ottla_broker.wire.records import Record

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)


RECORDS = st.builds(Record, st.integers(0, 2**41), st.none() | st.binary(), st.none() | st.binary(), HEADERS)
