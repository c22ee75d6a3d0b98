"""A coordinator's view of its partition of an internal topic: append with the strength of acks=all, and read everything."""

from collections.abc import Iterator

from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.wire.batch import Buffer, batches

READ_BYTES = 1 << 20


class PartitionJournal:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.partition = partition.partition

    async def append(self, batch: bytes) -> int:
        """The base offset, once the whole ISR has it. KafkaError when it could not be kept."""
        appended = self._partition.append(batch, acks=ALL_REPLICAS, from_client=False)
        waiting = self._partition.acknowledged(appended, ALL_REPLICAS)
        if waiting is not None:
            await waiting
        return appended.first_offset

    def read(self) -> Iterator[Buffer]:
        """All batches in chunks of about a MiB, from the log's start to its end.

        Not to the high watermark: a leader that has just begun may know an old one, and what its predecessor acknowledged lies above it.
        What nobody acknowledged is a commit too, as if it had been a little later.
        """
        log = self._partition.log
        offset, end = log.start, log.end
        while offset < end:
            data = log.read(offset, READ_BYTES, up_to=end)
            if not data:
                return
            yield data
            for _, header in batches(data):
                offset = header.next_offset
