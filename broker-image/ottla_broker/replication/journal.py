"""A coordinator's view of its partition of an internal topic in one leader epoch: append with the strength of acks=all, and read everything."""

from collections.abc import Iterator

from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.wire.batch import Buffer, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError

READ_BYTES = 1 << 20


class PartitionJournal:
    """Good for the epoch in which it was made: whoever leads again in another one reads everything anew."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._epoch = partition.leader_epoch
        self.partition = partition.partition

    def _check(self) -> None:
        if not self._partition.is_leader or self._partition.leader_epoch != self._epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{self._partition} is led elsewhere, or anew")

    async def wait_until_recovered(self) -> None:
        """Returns when the log holds, below its high watermark, all that was acknowledged in earlier epochs. NOT_LEADER_OR_FOLLOWER."""

        def settled() -> bool:
            self._check()
            return self._partition.has_reached_epoch_start

        await self._partition.read_waiters.wait_until(settled)

    async def append(self, batch: bytes) -> int:
        """The base offset, once the whole ISR has it. KafkaError when it could not be kept."""
        self._check()
        appended = self._partition.append_records(batch, acks=ALL_REPLICAS, from_client=False)
        waiting = self._partition.commit_future(appended, ALL_REPLICAS)
        if waiting is not None:
            await waiting
        return appended.first_offset

    def read(self) -> Iterator[Buffer]:
        """All batches in chunks of about a MiB, from the log's start to its end as it is now.

        Not to the high watermark: what is above it will be below it, or somebody else leads. What nobody acknowledged is a commit too, as if
        it had been a little later.
        """
        log = self._partition.log
        offset, end = log.start, log.end
        while offset < end:
            data = log.read(offset, READ_BYTES, up_to=end)
            if not data:
                return
            yield data
            for _, header in iter_batches(data):
                offset = header.next_offset
