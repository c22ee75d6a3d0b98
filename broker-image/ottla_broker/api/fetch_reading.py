"""What one partition gives to one Fetch of a client."""

from typing import TYPE_CHECKING, Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch import NO_EPOCH, FetchRequest, FetchRequestPartition, FetchResponsePartition

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog
    from ottla_broker.replication.partition import Partition

READ_COMMITTED: Final = 1
UNTOLD: Final = -1


class NotYet(KafkaError):
    """Cannot be answered now, but probably in a moment: worth waiting for before it is told."""


def read_for_client(
    partition: "Partition", request: FetchRequest, wanted: FetchRequestPartition, most: int, *, first: bool
) -> FetchResponsePartition:
    """Up to the high watermark, or the last stable offset. `most`: bytes; `first`: whether the first batch is given whatever its size.

    OFFSET_OUT_OF_RANGE; OFFSET_NOT_AVAILABLE for what a leader that has just begun, or a follower, does not know to be committed.
    """
    log, offset = partition.log, wanted.offset
    diverging = parting(log, wanted)
    watermark, settled = log.high_watermark, partition.has_reached_epoch_start
    if diverging is not None:
        told = (watermark, log.last_stable_offset) if settled else (UNTOLD, UNTOLD)
        return FetchResponsePartition(wanted.partition, ErrorCode.none, *told, log.start, diverging=diverging)
    if not log.start <= offset <= watermark:
        check_range(partition, offset)
    committed_only = request.isolation == READ_COMMITTED
    stable = log.last_stable_offset
    end = stable if committed_only else watermark
    if settled:
        fetched = FetchResponsePartition(wanted.partition, ErrorCode.none, watermark, stable, log.start)
    elif offset < watermark:
        # What its predecessor told may be higher; and nobody is told that it fell.
        fetched = FetchResponsePartition(wanted.partition, ErrorCode.none, UNTOLD, UNTOLD, log.start)
    else:
        raise NotYet(ErrorCode.offset_not_available, "the leader has just begun")
    if offset < end:
        if most > 0 or first:
            fetched.records = log.read(offset, most, up_to=end, at_least_one=first)
            if committed_only:
                fetched.aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(offset, end)]
        fetched.more = not fetched.records
    if committed_only and fetched.aborted is None:
        fetched.aborted = ()
    return fetched


def send_to(nearer: int, partition: "Partition", wanted: FetchRequestPartition) -> FetchResponsePartition:
    """Nothing but where to read instead."""
    log, settled = partition.log, partition.has_reached_epoch_start  # as above
    watermark, stable = (log.high_watermark, log.last_stable_offset) if settled else (UNTOLD, UNTOLD)
    fetched = FetchResponsePartition(wanted.partition, ErrorCode.none, watermark, stable, log.start)
    fetched.preferred = nearer
    return fetched


def check_range(partition: "Partition", offset: int) -> None:
    """Of an offset that is not between the log's start and the high watermark. Up to the leader's log end it is one that will come."""
    log = partition.log
    if offset < log.start or (partition.is_leader and offset > log.end):
        raise KafkaError(ErrorCode.offset_out_of_range)
    if not partition.is_leader:  # a follower does not know how far the leader's log goes
        raise NotYet(ErrorCode.offset_not_available, "the high watermark is not known to be so high")


def read_to_the_end(
    partition: "Partition", wanted: FetchRequestPartition, most: int, *, first: bool
) -> FetchResponsePartition:
    """For who compares replicas: whatever lies there. OFFSET_OUT_OF_RANGE."""
    log, offset = partition.log, wanted.offset
    if not log.start <= offset <= log.end:
        raise KafkaError(ErrorCode.offset_out_of_range)
    fetched = FetchResponsePartition(
        wanted.partition, ErrorCode.none, log.high_watermark, log.last_stable_offset, log.start
    )
    if offset < log.end:
        if most > 0 or first:
            fetched.records = log.read(offset, most, up_to=log.end, at_least_one=first)
        fetched.more = not fetched.records
    return fetched


def parting(log: "PartitionLog", wanted: FetchRequestPartition) -> tuple[int, int] | None:
    """(epoch, end) where the asker's log parts from ours: the largest epoch of ours that is no newer than its last, and where that ends.
    OFFSET_OUT_OF_RANGE when its last epoch is newer than all of ours."""
    asked = wanted.last_fetched_epoch
    if asked == NO_EPOCH:
        return None
    epoch, end = log.epochs.end_offset_for(asked, log.end)
    if epoch == NO_EPOCH:
        raise KafkaError(ErrorCode.offset_out_of_range)
    return (epoch, end) if epoch < asked or end < wanted.offset else None
