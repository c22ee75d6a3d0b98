"""What idempotent producers were refused for a while, so that the batches right behind are refused in the same words.

A producer sends up to five batches of a partition before it hears of the first. When that one is refused because the disk is full, the ISR too small or another broker the leader now,
those behind it no longer fit: the first of them would be out of order, and a client that hears so has to begin a new epoch, in which a batch that it does
not know to be written cannot be told from a new one. Nothing is out of order, though: the gap closes when the refused batch is sent again.
"""

from contextlib import suppress
from typing import Final

from ottla_broker.wire.batch import HEADER_SIZE, Buffer, parse_batch_header
from ottla_broker.wire.errors import ErrorCode, KafkaError

BEHIND: Final = 4  # a producer has at most five batches on their way
MOST_PRODUCERS: Final = 1000  # that are remembered; the one that was refused first makes room
PASSING: Final = frozenset(
    {ErrorCode.kafka_storage_error, ErrorCode.not_enough_replicas, ErrorCode.not_leader_or_follower}
)
HALF_OF_SEQUENCES: Final = 1 << 30


class RejectedBatches:
    """Of one partition. True while there are any."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[
            tuple[int, int], tuple[int, int, KafkaError]
        ] = {}  # producer → sequence, how many behind it, why

    def __bool__(self) -> bool:
        return bool(self._refused)

    def check(self, records: Buffer) -> None:
        """Raises what a batch just before this one was refused with."""
        if (found := _sequenced(records)) is None:
            return
        producer, sequence = found
        if (known := self._refused.get(producer)) is None:
            return
        first, behind, reason = known
        if not 0 < (sequence - first) % (2 * HALF_OF_SEQUENCES) < HALF_OF_SEQUENCES:
            return  # the refused one again, or one before it
        if behind == 0:
            del self._refused[producer]  # the producer has given the refused one up: its gap is told as such
            return
        self._refused[producer] = first, behind - 1, reason
        raise KafkaError(reason.code, f"behind sequence {first} of producer {producer[0]}: {reason.message}")

    def note(self, records: Buffer, reason: KafkaError) -> None:
        """A batch was refused."""
        if reason.code not in PASSING or (found := _sequenced(records)) is None:
            return
        producer, sequence = found
        self._refused.pop(producer, None)
        if len(self._refused) >= MOST_PRODUCERS:
            del self._refused[next(iter(self._refused))]
        self._refused[producer] = sequence, BEHIND, reason

    def accepted(self, records: Buffer) -> None:
        """A batch is in the log."""
        if (found := _sequenced(records)) is not None:
            self._refused.pop(found[0], None)

    def refuse(self, records: Buffer, reason: KafkaError) -> KafkaError:
        """The reason, for whoever may not append them now: what the same producer has sent right behind them is refused in the same words. KafkaError:
        that of a batch just before them."""
        self.check(records)
        self.note(records, reason)
        return reason

    def send_away(self, records: Buffer) -> None:
        """The producer is to bring them to who leads now, and what it has sent right behind them as well. `records`: the header of their first batch is enough."""
        with suppress(KafkaError):  # what a batch before them was refused with: they are behind that
            self.refuse(records, KafkaError(ErrorCode.not_leader_or_follower))

    def may_pass_on(self, records: Buffer) -> bool:
        """Whether nothing before them was sent away that has not come again: without it there would be a gap at who leads now."""
        try:
            self.check(records)
        except KafkaError:
            return False
        self.accepted(records)
        return True


def _sequenced(records: Buffer) -> tuple[tuple[int, int], int] | None:
    """((producer id, epoch), sequence) of the first batch; None without idempotence."""
    if len(records) < HEADER_SIZE:
        return None
    header = parse_batch_header(records)
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return (header.producer_id, header.producer_epoch), header.base_sequence
