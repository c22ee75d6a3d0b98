"""Reads a log as a consumer with `isolation.level=read_committed` does."""

from random import Random

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.records import Record
from tests.sim.read_committed import end_of, visible_records


def read_as_consumer(log: PartitionLog, start: int, random: Random) -> list[Record]:
    """The records that a read_committed consumer returns, from responses of random sizes."""
    found: list[Record] = []
    at, end = start, log.last_stable_offset
    while at < end:
        data = bytes(log.read(at, random.randrange(1, 600), up_to=end))
        aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(at, end)]
        found += [record for _, record in visible_records(data, aborted) if record.offset >= at]
        at = end_of(data, at)
    return found
