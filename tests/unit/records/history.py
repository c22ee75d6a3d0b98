"""Generated histories of a compacted partition, with idempotent and transactional producers, aborts
and tombstones, and their cleaning in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from ottla_broker.log.compaction import (
    CleanedTransactions,
    CleanerStats,
    CompactionFilter,
    LastRecord,
    OffsetMap,
    map_keys,
)
from ottla_broker.log.config import LogConfig
from ottla_broker.log.indexes import AbortedTransaction
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.wire.batch import BatchHeader, Buffer, Compression, parse_batch_header
from ottla_broker.wire.control_records import (
    ControlRecordType,
    control_record_type,
    encode_end_transaction_marker,
    marker_coordinator_epoch,
)
from ottla_broker.wire.records import Record, decode_batch, encode_batch

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Write:
    """`producer`: 0 has no id, 1 is idempotent, 2 and 3 are transactional."""

    producer: int
    pairs: tuple[tuple[bytes, bytes | None], ...]
    codec: Compression = Compression.none


@dataclass(frozen=True)
class End:
    """The end of a transaction."""

    producer: int
    commit: bool


keys = st.sampled_from([b"a", b"b", b"c", b"d" * 40])
values = st.none() | st.sampled_from([b"", b"1", b"22"])
writes = st.builds(
    Write,
    st.integers(0, 3),
    st.lists(st.tuples(keys, values), min_size=1, max_size=4).map(tuple),
    st.sampled_from([Compression.none, Compression.none, Compression.lz4, Compression.zstd]),
)
ends = st.builds(End, st.integers(2, 3), st.booleans())
histories = st.lists(st.one_of(writes, writes, writes, ends), min_size=1, max_size=25)


@dataclass
class Log:
    """Batches of a log, and the broker's state of it."""

    batches: list[Buffer] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    end: int = 0

    def headers(self) -> list[BatchHeader]:
        return [parse_batch_header(batch) for batch in self.batches]

    @property
    def producers(self) -> ProducerStates:
        return rebuild_states(self.batches)

    @property
    def stable(self) -> int:
        unstable = rebuild_states(self.batches, replicated=self.end).first_unstable_offset
        return self.end if unstable is None else unstable


def rebuild_states(batches: Iterable[Buffer], replicated: int = -1) -> ProducerStates:
    """Producer state as recovery builds it from batches."""
    found = ProducerStates()
    for batch in batches:
        header = parse_batch_header(batch)
        if header.producer_id < 0:
            continue
        if header.is_control:
            for marker in decode_batch(batch, header):
                found.apply_marker(
                    header.producer_id,
                    header.producer_epoch,
                    header.last_offset,
                    header.max_timestamp,
                    marker_coordinator_epoch(marker),
                    aborted=control_record_type(marker) is ControlRecordType.abort,
                    now_ms=0,
                )
        else:
            found.apply_batch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.is_transactional,
                0,
            )
    found.remove_replicated_transactions(replicated)
    return found


def write_history(history: Sequence[Write | End]) -> Log:
    """The log after these steps. An `End` of a producer without an open transaction is skipped."""
    log = Log()
    sequences: dict[int, int] = {}
    started: dict[int, int] = {}
    for n, step in enumerate(history):
        time_ms = NOW_MS - 1000 + n
        if isinstance(step, End):
            if step.producer not in started:
                continue
            log.batches.append(
                encode_end_transaction_marker(
                    step.commit,
                    1,
                    producer_id=step.producer,
                    producer_epoch=0,
                    timestamp_ms=time_ms,
                    base_offset=log.end,
                )
            )
            first = started.pop(step.producer)
            if not step.commit:
                log.aborted.append(AbortedTransaction(step.producer, first, log.end, log.end + 1))
            log.end += 1
            continue
        records = [Record(time_ms + at, key, value) for at, (key, value) in enumerate(step.pairs)]
        if not step.producer:
            log.batches.append(encode_batch(records, base_offset=log.end, compression=step.codec))
        else:
            sequence = sequences.get(step.producer, 0)
            sequences[step.producer] = sequence + len(records)
            if step.producer > 1:
                started.setdefault(step.producer, log.end)
            log.batches.append(
                encode_batch(
                    records,
                    base_offset=log.end,
                    compression=step.codec,
                    producer_id=step.producer,
                    producer_epoch=0,
                    base_sequence=sequence,
                    transactional=step.producer > 1,
                )
            )
        log.end += len(records)
    return log


def last_records_of_producers(producers: ProducerStates) -> Mapping[int, LastRecord]:
    return {p.producer_id: LastRecord(p.last_offset, p.epoch) for p in producers}


def clean_log(
    log: Log,
    *,
    first_dirty: int = 0,
    end: int | None = None,
    now_ms: int = NOW_MS,
    config: LogConfig | None = None,
    buffer_bytes: int = 1 << 20,
    producers: ProducerStates | None = None,
) -> tuple[Log, int, CleanerStats]:
    """The log after one cleaning, the offset where the cleaning ended, and its statistics. `end`:
    the first uncleanable offset."""
    end = log.stable if end is None else end
    offsets = OffsetMap(buffer_bytes, first_dirty)
    first_pass = CleanedTransactions(log.aborted)
    for batch, header in zip(log.batches, log.headers(), strict=True):
        if header.last_offset < first_dirty:
            continue
        if header.base_offset >= end or not map_keys(offsets, first_pass, batch, header):
            break
    compaction = CompactionFilter(
        offsets,
        CleanedTransactions(log.aborted),
        last_records_of_producers(log.producers if producers is None else producers),
        config or LogConfig(),
        (end,),
        now_ms,
    )
    kept = [
        out
        for batch, header in zip(log.batches, log.headers(), strict=True)
        if (out := compaction.filter_batch(batch, header)) is not None
    ]
    return Log(kept, list(compaction.transactions.kept), log.end), offsets.latest + 1, compaction.stats


def committed_records(log: Log) -> list[Record]:
    """Records that a read_committed consumer reads."""
    found: list[Record] = []
    for batch, header in zip(log.batches, log.headers(), strict=True):
        hidden = header.is_control or any(
            header.is_transactional
            and header.producer_id == gone.producer_id
            and gone.first_offset <= header.base_offset < gone.last_offset
            for gone in log.aborted
        )
        if not hidden:
            found += decode_batch(batch, header)
    return found


def last_values(records: Iterable[Record]) -> dict[bytes, bytes]:
    """The last value of each key."""
    found: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found
