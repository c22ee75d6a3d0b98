"""Idempotent and transactional producers: duplicates, gaps, wrapping, fencing, stable offsets,
snapshots."""

import struct

import pytest

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_snapshots import (
    CorruptProducerSnapshot,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from ottla_broker.log.producer_state import BatchMetadata, ProducerStateEntry
from ottla_broker.log.recovery import LogCheckpoint
from ottla_broker.wire.errors import ErrorCode
from tests.unit.kafka_errors import error_raised_by
from tests.unit.log.log_fixtures import NOW, LogFolder, append_committed, batch, marker, offsets

LAST = 2**31 - 1


def append_error(log: PartitionLog, data: bytes, *, from_client: bool = True) -> ErrorCode:
    return error_raised_by(append_committed, log, data, from_client=from_client)


def test_rule_8_duplicate_gets_the_original_offset(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(4))
    for sequence in (0, 3, 6, 9, 12):
        append_committed(log, batch(3, producer=(9, 0, sequence)))
    end = log.end
    for n, sequence in enumerate((0, 3, 6, 9, 12)):
        done = log.append_as_leader(batch(3, producer=(9, 0, sequence)), leader_epoch=0, now_ms=NOW)
        assert done.is_duplicate and (done.first_offset, done.last_offset) == (4 + 3 * n, 6 + 3 * n)
        assert done.byte_count == 0
    assert log.end == end


def test_rule_8_last_five_batches_are_retained(folder: LogFolder) -> None:
    log = folder.create()
    for sequence in range(6):
        append_committed(log, batch(1, producer=(9, 0, sequence)))
    assert append_error(log, batch(1, producer=(9, 0, 0))) is ErrorCode.out_of_order_sequence_number
    assert log.append_as_leader(batch(1, producer=(9, 0, 1)), leader_epoch=0, now_ms=NOW).is_duplicate


def test_sequence_gap_is_rejected_and_the_next_sequence_still_expected(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(2, producer=(9, 0, 0)))
    assert append_error(log, batch(1, producer=(9, 0, 3))) is ErrorCode.out_of_order_sequence_number
    assert append_committed(log, batch(1, producer=(9, 0, 2))) == (2, 2)


@pytest.mark.parametrize(("count", "next_sequence"), [(1, 0), (3, 2)])
def test_rule_8_sequences_wrap_at_2_31(folder: LogFolder, count: int, next_sequence: int) -> None:
    log = folder.create()
    # An unknown producer may start with any sequence.
    append_committed(log, batch(1, producer=(9, 0, LAST - 1)))
    append_committed(log, batch(count, producer=(9, 0, LAST)))
    append_committed(log, batch(1, producer=(9, 0, next_sequence)))
    assert log.append_as_leader(batch(count, producer=(9, 0, LAST)), leader_epoch=0, now_ms=NOW).is_duplicate
    folder.config = log.config
    again = folder.reopen()
    assert again.append_as_leader(batch(count, producer=(9, 0, LAST)), leader_epoch=0, now_ms=NOW).is_duplicate


def test_newer_producer_epoch_fences_older_ones(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1, producer=(9, 1, 0)))
    assert append_error(log, batch(1, producer=(9, 0, 1))) is ErrorCode.invalid_producer_epoch
    assert append_error(log, batch(1, producer=(9, 2, 1))) is ErrorCode.out_of_order_sequence_number
    append_committed(log, batch(1, producer=(9, 2, 0)))
    assert append_error(log, batch(1, producer=(9, 1, 0))) is ErrorCode.invalid_producer_epoch


def test_failed_append_does_not_change_producer_state(failing_folder: LogFolder) -> None:
    log = failing_folder.create()
    failing_folder.disk.room = 0  # type: ignore[attr-defined]
    assert append_error(log, batch(1, producer=(9, 0, 0))) is ErrorCode.kafka_storage_error
    failing_folder.disk.room = None  # type: ignore[attr-defined]
    assert append_committed(log, batch(1, producer=(9, 0, 0))) == (0, 0)


def test_rule_7_last_stable_offset_stays_at_the_first_open_transaction(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(2))
    assert log.last_stable_offset == 2
    append_committed(log, batch(1, producer=(1, 0, 0), transactional=True))
    append_committed(log, batch(1, producer=(2, 0, 0), transactional=True))
    assert log.last_stable_offset == 2
    append_committed(log, marker(True, 1), from_client=False)
    assert log.last_stable_offset == 3
    append_committed(log, marker(False, 2), from_client=False)
    assert log.last_stable_offset == log.end == 6
    assert [
        (a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset) for a in log.aborted_transactions(0, 6)
    ] == [(2, 3, 5, 6)]
    assert log.aborted_transactions(0, 3) == []


def test_rule_7_last_stable_offset_passes_a_replicated_marker(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1, producer=(1, 0, 0), transactional=True))
    log.append_as_leader(marker(True, 1), leader_epoch=0, now_ms=NOW, from_client=False)
    assert log.last_stable_offset == 0
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_markers_of_old_epochs_are_fenced(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1, producer=(1, 3, 0), transactional=True))
    assert append_error(log, marker(True, 1, producer_epoch=2), from_client=False) is ErrorCode.invalid_producer_epoch
    append_committed(log, marker(True, 1, producer_epoch=3, coordinator_epoch=5), from_client=False)
    late = marker(True, 1, producer_epoch=3, coordinator_epoch=4)
    assert append_error(log, late, from_client=False) is ErrorCode.transaction_coordinator_fenced


def test_batch_outside_of_the_open_transaction_is_rejected(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1, producer=(1, 0, 0), transactional=True))
    assert append_error(log, batch(1, producer=(1, 0, 1))) is ErrorCode.invalid_txn_state


def test_silent_producers_expire_unless_a_transaction_is_open(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1, producer=(1, 0, 0)))
    append_committed(log, batch(1, producer=(2, 0, 0), transactional=True))
    assert log.producers.remove_expired(NOW + 999, 1_000) == 0
    assert log.producers.remove_expired(NOW + 1_000, 1_000) == 1
    assert [p.producer_id for p in log.producers] == [2]


@pytest.mark.parametrize("restarts", [True, False])
def test_marker_keeps_its_producer_as_a_batch_does(folder: LogFolder, restarts: bool) -> None:
    """KAFKA-9144: a producer that expires after its marker would begin a transaction with any
    epoch."""
    log = folder.create()
    append_committed(log, batch(1, producer=(1, 3, 0), transactional=True))
    folder.clock.now_ms += 900
    append_committed(log, marker(True, 1, producer_epoch=3), from_client=False)
    if restarts:
        log = folder.reopen()
    assert log.producers.remove_expired(NOW + 1_899, 1_000) == 0
    assert append_error(log, batch(1, producer=(1, 2, 0))) is ErrorCode.invalid_producer_epoch
    assert log.producers.remove_expired(NOW + 1_900, 1_000) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_rule_8_producers_survive_a_restart(folder: LogFolder, clean: bool) -> None:
    log = folder.create()
    for sequence in range(7):
        append_committed(log, batch(1, producer=(9, 0, sequence)))
        append_committed(log, batch(1, producer=(8, 4, sequence)))
    append_committed(log, batch(1, producer=(5, 1, 0), transactional=True))
    if clean:
        log.snapshots.write(log.end, encode_producer_snapshot(log.producers))
        log.close()
    again = folder.reopen(LogCheckpoint(clean=clean, recovery_point=log.end if clean else 0))
    again.advance_high_watermark(again.end)
    assert again.last_stable_offset == 14
    assert again.producers.get(9) is not None
    # The snapshot of a clean shutdown has one batch; the other four are read from the log.
    for sequence in range(2, 7):
        done = again.append_as_leader(batch(1, producer=(9, 0, sequence)), leader_epoch=0, now_ms=NOW)
        assert done.is_duplicate and done.first_offset == 2 * sequence
    assert append_error(again, batch(1, producer=(9, 0, 1))) is ErrorCode.out_of_order_sequence_number
    assert append_committed(again, batch(1, producer=(8, 4, 7))) == (15, 15)
    append_committed(again, marker(False, 5, producer_epoch=1), from_client=False)
    assert [entry.first_offset for entry in again.aborted_transactions(0, again.end)] == [14]


def test_truncation_restores_producer_state(folder: LogFolder) -> None:
    log = folder.create()
    for sequence in range(4):
        append_committed(log, batch(1, producer=(9, 0, sequence)))
    append_committed(log, batch(1, producer=(7, 0, 0), transactional=True))
    append_committed(log, marker(False, 7), from_client=False)
    log.truncate_to(5)
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 4
    assert log.aborted_transactions(0, 10) == []
    log.truncate_to(2)
    assert log.producers.get(7) is None
    assert append_committed(log, batch(1, producer=(9, 0, 2))) == (2, 2)
    assert offsets(log) == [0, 1, 2]


class TestSnapshotFormat:
    def test_bytes_are_in_kafkas_format(self) -> None:
        producer = ProducerStateEntry(5, 2, 3, NOW, 40)
        producer.batches.append(BatchMetadata(11, 44, 1, NOW))
        data = encode_producer_snapshot([producer])
        assert struct.unpack(">h", data[:2]) == (1,)
        assert struct.unpack(">i", data[6:10]) == (1,)
        assert struct.unpack(">qhiqiqiq", data[10:]) == (5, 2, 11, 44, 1, NOW, 3, 40)

    def test_snapshot_is_decoded_as_encoded(self) -> None:
        producer = ProducerStateEntry(5, 2, 3, NOW, -1)
        producer.batches.append(BatchMetadata(11, 44, 1, NOW))
        (read,) = decode_producer_snapshot(encode_producer_snapshot([producer]), NOW)
        assert (read.producer_id, read.epoch, list(read.batches)) == (5, 2, list(producer.batches))
        (empty,) = decode_producer_snapshot(encode_producer_snapshot([ProducerStateEntry(6, 1)]), NOW)
        assert not empty.batches and empty.last_sequence == -1

    @pytest.mark.parametrize("at", [0, 2, 8, 15])
    def test_flipped_bit_is_detected(self, at: int) -> None:
        data = bytearray(encode_producer_snapshot([ProducerStateEntry(6, 1)]))
        data[at] ^= 0x40
        with pytest.raises(CorruptProducerSnapshot):
            decode_producer_snapshot(bytes(data), NOW)

    def test_torn_snapshot_is_ignored(self, folder: LogFolder) -> None:
        log = folder.create()
        append_committed(log, batch(1, producer=(9, 0, 0)))
        log.roll()
        append_committed(log, batch(1, producer=(9, 0, 1)))
        log.close()
        with open(log.snapshots.path(1), "r+b") as file:  # noqa: PTH123
            file.truncate(12)
        again = folder.reopen()
        assert again.failure is None
        assert append_committed(again, batch(1, producer=(9, 0, 2))) == (2, 2)
