"""The errors of transactional requests as a client library classifies them."""

from ottla_broker.wire.errors import ErrorCode, KafkaError

FENCING = frozenset(
    {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping}
)
ABORTABLE = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,  # of a batch or a commit that came after the transaction's timeout
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.stale_member_epoch,
        ErrorCode.rebalance_in_progress,
    }
)


class RejectedByBroker(Exception):
    """`is_outcome_unknown`: a former attempt of the same operation has no answer, so that it may
    have succeeded."""

    def __init__(self, *, is_outcome_unknown: bool) -> None:
        super().__init__(is_outcome_unknown)
        self.is_outcome_unknown = is_outcome_unknown


class Fenced(RejectedByBroker):
    """A newer instance exists, or the coordinator has aborted the transaction: the program must
    start again."""


class AbortableError(RejectedByBroker):
    """The transaction has to be aborted."""


class NoAnswer(Exception):
    """No definite answer came in time."""


def check_code(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise KafkaError(code, f"{what}: {code.name}")
