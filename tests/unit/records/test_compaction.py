"""Compaction of batches against a model: the last value of each key, offsets, producer state (rule
14)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.log.compaction import BYTES_PER_KEY
from ottla_broker.log.config import LogConfig
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.wire.batch import Compression, has_valid_crc
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.records import Record, decode_batch, encode_batch
from tests.unit.records.history import (
    NOW_MS,
    End,
    Log,
    Write,
    clean_log,
    committed_records,
    histories,
    last_values,
    rebuild_states,
    write_history,
)

DAY_MS = 24 * 3600 * 1000


def producer_entries(producers: ProducerStates) -> dict[int, tuple[int, int, int, int]]:
    """The state that decides whether the next batch of each producer is accepted."""
    return {p.producer_id: (p.epoch, p.last_sequence, p.last_offset, p.current_txn_first_offset) for p in producers}


def records_by_offset(log: Log) -> dict[int, Record]:
    pairs = zip(log.batches, log.headers(), strict=True)
    return {record.offset: record for batch, header in pairs for record in decode_batch(batch, header)}


@settings(max_examples=250)
@given(histories, st.data())
def test_cleaning_keeps_what_readers_and_producers_need(history: list[Write | End], data: st.DataObject) -> None:
    log = write_history(history)
    bounds = [0] + [header.base_offset for header in log.headers() if header.base_offset <= log.stable]
    end = data.draw(st.sampled_from([*bounds, log.stable]))
    first_dirty = data.draw(st.sampled_from([b for b in bounds if b <= end]))
    after, cleaned_to, tally = clean_log(log, first_dirty=first_dirty, end=end)

    before, left = records_by_offset(log), records_by_offset(after)
    assert all(left[offset] == before[offset] for offset in left), "what stays keeps offset, time, key and value"
    assert [offset for offset in left if offset >= end] == [offset for offset in before if offset >= end]
    assert last_values(committed_records(after)) == last_values(committed_records(log))
    assert producer_entries(after.producers) == producer_entries(log.producers)
    untouched = [b for b, h in zip(log.batches, log.headers(), strict=True) if h.base_offset >= end]
    assert after.batches[len(after.batches) - len(untouched) :] == untouched
    assert cleaned_to <= end
    assert all(has_valid_crc(batch, header) for batch, header in zip(after.batches, after.headers(), strict=True))
    assert tally.bytes_kept == sum(map(len, after.batches))
    assert tally.records_kept == len(left)
    if first_dirty == 0:
        dirty = [r for r in committed_records(after) if r.offset < end]
        assert len({r.key for r in dirty}) == len(dirty), "one record for each key in what was cleaned"


@settings(max_examples=100)
@given(histories, st.integers(1, 3))
def test_several_cleanings_with_little_memory_have_the_same_result(history: list[Write | End], key_count: int) -> None:
    log = write_history(history)
    whole, end, _ = clean_log(log)
    step, at = log, 0
    while at < end:
        step, reached, _ = clean_log(
            step, first_dirty=at, end=log.stable, buffer_bytes=key_count * BYTES_PER_KEY, producers=log.producers
        )
        assert reached > at, "every cleaning makes progress"
        at = reached
    assert [r for r in records_by_offset(step).values() if r.value] == [
        r for r in records_by_offset(whole).values() if r.value
    ]
    assert producer_entries(step.producers) == producer_entries(log.producers)


def test_transaction_before_the_dirty_part_does_not_affect_the_next_transaction_of_its_producer() -> None:
    aborted: list[Write | End] = [Write(2, ((b"a", b"2"),)), End(2, commit=False)]
    log = write_history([Write(0, ((b"a", b"1"),)), *aborted, Write(2, ((b"a", b"3"),)), End(2, commit=True)])
    after, reached, _ = clean_log(log, first_dirty=3)
    assert reached == 5
    assert [r.offset for r in records_by_offset(after).values() if r.key == b"a"] == [3]


@settings(max_examples=150)
@given(histories, st.lists(st.integers(0, 3 * DAY_MS), min_size=1, max_size=5).map(sorted))
def test_tombstones_are_removed_after_their_delete_horizon(history: list[Write | End], later_ms: list[int]) -> None:
    log = write_history(history)
    step, _, _ = clean_log(log, producers=log.producers)
    last = {r.key: r for r in committed_records(log) if r.offset < log.stable}
    tombstones = {r.offset for r in last.values() if r.value is None}
    assert {o for o, r in records_by_offset(step).items() if r.value is None and o < log.stable} == tombstones
    for ms in later_ms:
        step, _, _ = clean_log(
            step, first_dirty=log.stable, end=log.stable, now_ms=NOW_MS + ms, producers=log.producers
        )
        left = {o for o, r in records_by_offset(step).items() if r.value is None and o < log.stable}
        assert left == (tombstones if ms < DAY_MS else set())
        assert last_values(committed_records(step)) == last_values(committed_records(log))
        assert producer_entries(step.producers) == producer_entries(log.producers)


@settings(max_examples=100)
@given(histories)
def test_cleaning_a_clean_log_changes_only_delete_horizons(history: list[Write | End]) -> None:
    log = write_history(history)
    once, end, _ = clean_log(log, producers=log.producers)
    twice, _, _ = clean_log(once, first_dirty=end, end=log.stable, producers=log.producers)
    thrice, _, _ = clean_log(twice, first_dirty=end, end=log.stable, producers=log.producers)
    assert records_by_offset(twice) == records_by_offset(once)
    assert thrice.batches == twice.batches


@settings(max_examples=150)
@given(histories)
def test_marker_stays_while_a_record_of_its_transaction_stays(history: list[Write | End]) -> None:
    log = write_history(history)
    step = log
    for days in range(4):
        step, _, _ = clean_log(step, end=log.stable, now_ms=NOW_MS + days * 2 * DAY_MS, producers=ProducerStates())
        open_before = {p.producer_id for p in log.producers if p.current_txn_first_offset >= 0}
        open_after = {p.producer_id for p in rebuild_states(step.batches) if p.current_txn_first_offset >= 0}
        assert open_after <= open_before, "a transaction lost its end marker"


def test_aborted_transactions_are_removed_and_their_markers_a_day_later() -> None:
    log = write_history([Write(2, ((b"a", b"1"),)), End(2, commit=False), Write(0, ((b"b", b"2"),))])
    # The producer has expired.
    expired = ProducerStates()
    after, _, _ = clean_log(log, producers=expired)
    assert sorted(records_by_offset(after)) == [1, 2]
    assert after.aborted == log.aborted, "its marker stays, and its entry in the transaction index"
    marked, _, _ = clean_log(after, producers=expired, first_dirty=3)
    assert marked.headers()[0].has_delete_horizon
    assert marked.headers()[0].base_timestamp == NOW_MS + DAY_MS
    assert marked.aborted == []
    assert sorted(
        records_by_offset(clean_log(marked, producers=expired, first_dirty=3, now_ms=NOW_MS + DAY_MS - 1)[0])
    ) == [
        1,
        2,
    ]
    assert sorted(
        records_by_offset(clean_log(marked, producers=expired, first_dirty=3, now_ms=NOW_MS + DAY_MS)[0])
    ) == [2]


def test_the_last_batch_of_an_active_producer_stays_without_records() -> None:
    log = write_history([Write(1, ((b"a", b"1"), (b"a", b"2"))), Write(0, ((b"a", b"3"),)), Write(0, ((b"b", b"4"),))])
    after, _, _ = clean_log(log)
    first = after.headers()[0]
    assert (first.count, first.base_offset, first.last_offset, first.last_sequence) == (0, 0, 1, 1)
    assert first.max_timestamp == log.headers()[0].max_timestamp
    assert first.size == 61
    forgotten, _, _ = clean_log(after, first_dirty=4, producers=ProducerStates())
    assert [h.base_offset for h in forgotten.headers()] == [2, 3], "the producer has expired"


def test_last_marker_of_a_producer_stays() -> None:
    """Its epoch fences the producer's older instances."""
    marker = encode_end_transaction_marker(False, 4, producer_id=9, producer_epoch=5, timestamp_ms=NOW_MS)
    log = Log([marker, encode_batch([Record(NOW_MS, b"k", b"v")], base_offset=1)], end=2)
    for days in range(4):
        after, _, _ = clean_log(log, now_ms=NOW_MS + days * DAY_MS)
        assert after.batches == log.batches


def test_last_batch_before_the_end_stays() -> None:
    log = write_history([Write(0, ((b"a", b"1"),)), Write(2, ((b"a", b"2"),)), End(2, commit=False)])
    after, _, _ = clean_log(log, end=2, producers=ProducerStates())
    assert [(h.base_offset, h.count) for h in after.headers()] == [(0, 1), (1, 0), (2, 1)]


def test_records_without_a_key_are_removed() -> None:
    log = Log(
        [
            encode_batch([Record(1, None, b"x"), Record(2, b"k", b"y")]),
            encode_batch([Record(1, b"e", b"")], base_offset=2),
        ],
        end=3,
    )
    after, _, _ = clean_log(log)
    assert sorted(records_by_offset(after)) == [1, 2]


def test_codec_and_timestamp_type_stay() -> None:
    for codec in Compression:
        batch = encode_batch(
            [Record(1, b"k", b"x" * 500), Record(2, b"l", b"y" * 500)], compression=codec, log_append_time_ms=77
        )
        log = Log([batch, encode_batch([Record(9, b"k", b"")], base_offset=2)], end=3)
        after, _, _ = clean_log(log)
        header = after.headers()[0]
        assert (header.compression, header.has_log_append_time, header.max_timestamp) == (codec, True, 77)
        assert [r.timestamp_ms for r in decode_batch(after.batches[0], header)] == [77]


def test_infinite_delete_retention_does_not_overflow() -> None:
    log = write_history([Write(0, ((b"a", None),)), Write(0, ((b"b", b""),))])
    after, _, _ = clean_log(log, config=LogConfig(delete_retention_ms=2**63 - 1))
    header = after.headers()[0]
    assert header.base_timestamp == 2**63 - 1
    assert decode_batch(after.batches[0], header) == decode_batch(log.batches[0], log.headers()[0])
