"""The state machine of a transactional id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.transactions.transaction_metadata import (
    DECIDED_STATES,
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TxnPartition,
    abort_fenced,
    add_partitions,
    complete,
    end_transaction,
    find_missing_partitions,
    initialize_producer,
    needs_new_producer_id,
    producer_after_end,
)
from ottla_broker.wire.batch import NO_PRODUCER_ID
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.kafka_errors import error_raised_by

T0 = TxnPartition("t", 0)
T1 = TxnPartition("t", 1)
NOW_MS = 1_000


def begin(
    current: TransactionMetadata | None = None, expected: ProducerIdAndEpoch | None = None, version: int = 2
) -> TransactionMetadata:
    return initialize_producer(
        current, expected, timeout_ms=60_000, now_ms=NOW_MS, new_producer_id=77, transaction_version=version
    )


def end(current: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool, version: int) -> TransactionMetadata:
    return end_transaction(
        current, producer, commit=commit, client_version=version, new_producer_id=88, now_ms=NOW_MS + 5
    )


def ongoing(version: int, epoch: int = 3) -> TransactionMetadata:
    empty = TransactionMetadata(5, epoch, 60_000)
    return add_partitions(empty, empty.producer, [T0], now_ms=NOW_MS, client_version=version)


def test_new_id_gets_a_new_producer_with_epoch_0() -> None:
    assert needs_new_producer_id(None, None)
    assert begin().producer == (77, 0)


def test_new_instance_gets_a_higher_epoch_and_a_retry_the_same() -> None:
    first = begin()
    second = begin(first)
    assert second.producer == (77, 1)
    recovered = begin(second, ProducerIdAndEpoch(77, 1))
    assert recovered.producer == (77, 2)
    assert begin(recovered, ProducerIdAndEpoch(77, 1)).producer == (77, 2)  # the answer was lost
    assert error_raised_by(begin, recovered, ProducerIdAndEpoch(77, 0)) is ErrorCode.producer_fenced
    assert error_raised_by(begin, recovered, ProducerIdAndEpoch(76, 2)) is ErrorCode.producer_fenced


def test_used_up_epochs_give_a_new_producer_id() -> None:
    last = TransactionMetadata(5, LAST_CLIENT_EPOCH, 60_000)
    assert needs_new_producer_id(last, None)
    renewed = begin(last)
    assert (renewed.producer, renewed.previous_producer_id) == ((77, 0), 5)


def test_a_producer_may_repeat_the_request_that_gave_it_a_new_producer_id() -> None:
    used_up = ProducerIdAndEpoch(5, LAST_CLIENT_EPOCH)
    last = TransactionMetadata(*used_up, 60_000)
    renewed = begin(last, used_up)
    assert renewed.producer == begin(renewed, used_up).producer == (77, 0)
    assert error_raised_by(begin, renewed, ProducerIdAndEpoch(5, LAST_CLIENT_EPOCH - 1)) is ErrorCode.producer_fenced
    assert error_raised_by(begin, begin(last), used_up) is ErrorCode.producer_fenced  # another instance began


@pytest.mark.parametrize("version", [0, 2])
def test_instance_that_finds_an_open_transaction_aborts_it_with_an_epoch_of_its_own(version: int) -> None:
    current = ongoing(version)
    aborting = begin(current, version=version)
    assert (aborting.state, aborting.producer) == (TransactionState.prepare_abort, (5, 4))
    assert aborting.partitions == {T0}
    aborted = complete(aborting, now_ms=NOW_MS)
    assert begin(aborted).producer == (5, 5)
    with pytest.raises(KafkaError) as fenced:
        end_transaction(aborted, current.producer, commit=False, client_version=0, new_producer_id=-1, now_ms=NOW_MS)
    assert fenced.value.code is ErrorCode.producer_fenced


def test_fencing_never_exceeds_the_largest_epoch() -> None:
    aborting = abort_fenced(ongoing(2, LAST_CLIENT_EPOCH), now_ms=NOW_MS, transaction_version=2)
    assert aborting.producer_epoch == MAX_EPOCH
    aborted = complete(aborting, now_ms=NOW_MS)
    assert needs_new_producer_id(aborted, None)
    assert begin(aborted).producer == (77, 0)


def test_partitions_are_added_and_verified_for_the_current_producer_only() -> None:
    current = ongoing(0)
    assert add_partitions(current, current.producer, [T0], now_ms=2_000, client_version=0) is current
    more = add_partitions(current, current.producer, [T1], now_ms=2_000, client_version=0)
    assert (more.partitions, more.start_ms, more.last_update_ms) == (frozenset({T0, T1}), NOW_MS, 2_000)
    assert find_missing_partitions(more, more.producer, [T0, T1]) == frozenset()
    assert find_missing_partitions(current, current.producer, [T0, T1]) == {T1}
    for stale, code in (
        (ProducerIdAndEpoch(5, 2), ErrorCode.producer_fenced),
        (ProducerIdAndEpoch(6, 3), ErrorCode.invalid_producer_id_mapping),
    ):
        assert error_raised_by(find_missing_partitions, current, stale, [T0]) is code
        assert error_raised_by(add_partitions, current, stale, [T0], now_ms=0, client_version=0) is code
        assert error_raised_by(end, current, stale, True, 0) is code
    assert (
        error_raised_by(find_missing_partitions, None, current.producer, [T0]) is ErrorCode.invalid_producer_id_mapping
    )


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_version_1_keeps_the_epoch_and_repeats_an_end(commit: bool) -> None:
    current = ongoing(0)
    decided = end(current, current.producer, commit, 0)
    assert decided.producer == current.producer == producer_after_end(decided)
    assert error_raised_by(end, decided, current.producer, commit, 0) is ErrorCode.concurrent_transactions
    assert error_raised_by(end, decided, current.producer, not commit, 0) is ErrorCode.invalid_txn_state
    assert error_raised_by(add_partitions, decided, current.producer, [T0], now_ms=0, client_version=0) is (
        ErrorCode.concurrent_transactions
    )
    completed = complete(decided, now_ms=NOW_MS)
    assert completed.partitions == frozenset()
    assert end(completed, current.producer, commit, 0) is completed
    assert error_raised_by(end, completed, current.producer, not commit, 0) is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_version_2_raises_the_epoch_at_each_end_and_recognises_a_retry(commit: bool) -> None:
    current = ongoing(2)
    decided = end(current, current.producer, commit, 2)
    assert decided.producer == (5, 4) == producer_after_end(decided)
    assert error_raised_by(end, decided, current.producer, commit, 2) is ErrorCode.concurrent_transactions
    completed = complete(decided, now_ms=NOW_MS)
    assert end(completed, current.producer, commit, 2) is completed  # the answer was lost
    assert error_raised_by(end, completed, current.producer, not commit, 2) is ErrorCode.invalid_txn_state
    assert error_raised_by(add_partitions, completed, current.producer, [T0], now_ms=0, client_version=2) is (
        ErrorCode.producer_fenced
    )
    following = add_partitions(completed, completed.producer, [T1], now_ms=NOW_MS, client_version=2)
    assert following.partitions == {T1}


def test_transaction_version_2_gives_a_new_producer_id_when_epochs_are_used_up() -> None:
    current = ongoing(2, LAST_CLIENT_EPOCH)
    decided = end(current, current.producer, True, 2)
    assert decided.producer == (5, MAX_EPOCH)  # of the markers
    assert producer_after_end(decided) == (88, 0)
    completed = complete(decided, now_ms=NOW_MS)
    assert (completed.producer, completed.next_producer_id) == ((88, 0), NO_PRODUCER_ID)
    assert end(completed, current.producer, True, 2) is completed  # the answer was lost


def test_transaction_version_2_lets_a_producer_abort_when_no_transaction_has_begun() -> None:
    empty = begin()
    aborting = end(empty, empty.producer, False, 2)
    assert (aborting.state, aborting.producer) == (TransactionState.prepare_abort, (77, 1))
    assert error_raised_by(end, empty, empty.producer, True, 2) is ErrorCode.invalid_txn_state
    assert error_raised_by(end, empty, empty.producer, False, 0) is ErrorCode.invalid_txn_state


@given(st.data())
def test_former_producer_never_changes_anything_once_a_newer_one_began(data: st.DataObject) -> None:
    """Whatever happens after, the epoch that a fenced producer holds is refused."""
    version = data.draw(st.sampled_from((0, 2)))
    current = begin()
    fenced = current.producer
    current = begin(current)
    for _ in range(data.draw(st.integers(0, 12))):
        step = data.draw(st.sampled_from(("begin", "add", "commit", "abort", "complete", "timeout")))
        try:
            match step:
                case "begin":
                    current = begin(current, version=version)
                case "add":
                    current = add_partitions(current, current.producer, [T0], now_ms=NOW_MS, client_version=version)
                case "commit" | "abort":
                    current = end(current, current.producer, step == "commit", version)
                case "complete" if current.state in DECIDED_STATES:
                    current = complete(current, now_ms=NOW_MS)
                case "timeout" if current.state is TransactionState.ongoing:
                    current = abort_fenced(current, now_ms=NOW_MS, transaction_version=version)
        except KafkaError:
            continue
        assert current.producer != fenced
        refused = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping)
        assert error_raised_by(add_partitions, current, fenced, [T1], now_ms=NOW_MS, client_version=version) in refused
        assert error_raised_by(find_missing_partitions, current, fenced, [T0]) in refused
