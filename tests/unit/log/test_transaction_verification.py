"""What a partition's leader checks before a transaction begins or ends in its log."""

from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.transaction_verification import VerificationGuard
from ottla_broker.wire.errors import ErrorCode
from tests.unit.kafka_errors import error_raised_by


def open_transaction(producers: ProducerStates, *, epoch: int = 3) -> None:
    producers.apply_batch(7, epoch, 0, 10, 0, 0, True, 0)


def end_transaction(producers: ProducerStates, *, epoch: int, offset: int = 11) -> None:
    producers.apply_marker(7, epoch, offset, 0, 0, aborted=True, now_ms=0)


def verification_error(producers: ProducerStates, guard: VerificationGuard | None) -> ErrorCode:
    """The error of a batch in epoch 3 of the producer."""
    return error_raised_by(producers.check_verified, 7, 3, guard)


def check_batch(producers: ProducerStates, epoch: int, sequence: int) -> None:
    assert producers.check_batch(7, epoch, sequence, 0, transactional=True, sequenced=True) is None


def check_batch_is_out_of_order(producers: ProducerStates, sequence: int) -> None:
    assert error_raised_by(check_batch, producers, 3, sequence) is ErrorCode.out_of_order_sequence_number


def test_first_batch_of_a_transaction_needs_a_verification() -> None:
    producers = ProducerStates()
    assert verification_error(producers, None) is ErrorCode.invalid_txn_state
    guard = producers.verifications.begin(7, 3)
    producers.check_verified(7, 3, guard)
    open_transaction(producers)
    producers.check_verified(7, 3, None)  # the transaction is open


def test_marker_between_verification_and_append_makes_the_verification_invalid() -> None:
    producers = ProducerStates()
    guard = producers.verifications.begin(7, 3)
    end_transaction(producers, epoch=3)
    assert verification_error(producers, guard) is ErrorCode.invalid_txn_state


def test_former_epoch_is_refused_before_its_verification_is_looked_at() -> None:
    producers = ProducerStates()
    open_transaction(producers, epoch=4)
    assert verification_error(producers, None) is ErrorCode.invalid_producer_epoch


def test_unknown_producer_of_transaction_version_2_begins_with_sequence_0() -> None:
    producers = ProducerStates()
    producers.verifications.begin(7, 3, 4, adds_partition=True)
    check_batch_is_out_of_order(producers, 4)
    check_batch(producers, 3, 0)


def test_unknown_producer_of_transaction_version_1_begins_with_any_sequence() -> None:
    """Its records may have been deleted."""
    producers = ProducerStates()
    producers.verifications.begin(7, 3, 4)
    check_batch(producers, 3, 4)


def test_batch_is_refused_before_an_earlier_one_that_was_verified() -> None:
    producers = ProducerStates()
    producers.verifications.begin(7, 3, 4)
    producers.verifications.begin(7, 3, 6)
    check_batch_is_out_of_order(producers, 6)
    check_batch(producers, 3, 4)
    producers.verifications.begin(7, 4, 9)
    check_batch(producers, 4, 9)  # a later epoch begins anew


def test_repeated_batch_that_arrives_late_does_not_block_the_next_transaction() -> None:
    producers = ProducerStates()
    for sequence in range(5):
        producers.apply_batch(7, 3, sequence, 10 + sequence, 0, 0, True, 0)
    end_transaction(producers, epoch=3, offset=15)
    producers.verifications.begin(7, 3, 4)  # of the repeated batch
    assert producers.check_batch(7, 3, 4, 0, transactional=True, sequenced=True) is not None
    producers.verifications.begin(7, 3, 5)
    check_batch(producers, 3, 5)
    check_batch_is_out_of_order(producers, 6)


def test_marker_of_transaction_version_2_that_comes_again_is_not_written_again() -> None:
    producers = ProducerStates()
    open_transaction(producers, epoch=3)
    assert not producers.is_end_written(7, 4, 2)
    end_transaction(producers, epoch=4)
    assert producers.is_end_written(7, 4, 2)
    assert not producers.is_end_written(7, 4, 0), "in transaction version 1 the next transaction has the same epoch"


def test_marker_of_transaction_version_2_never_ends_a_later_transaction() -> None:
    producers = ProducerStates()
    open_transaction(producers, epoch=4)
    assert error_raised_by(producers.is_end_written, 7, 4, 2) is ErrorCode.invalid_producer_epoch


def test_marker_of_an_unknown_producer_is_written() -> None:
    assert not ProducerStates().is_end_written(7, 4, 2)
