"""A coordinator's partition of an internal topic in one leader epoch: appends with acks=all, and reads everything."""

from collections.abc import Iterator

from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.wire.batch import Buffer, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError

READ_BYTES = 1 << 20


class PartitionJournal:
    """Valid in the leader epoch in which it is created: in another one the coordinator loads everything again."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._epoch = partition.leader_epoch
        self.partition = partition.partition

    def _check(self) -> None:
        if not self._partition.is_leader or self._partition.leader_epoch != self._epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower, f"{self._partition} is led by another broker or in another epoch"
            )

    async def wait_until_recovered(self) -> None:
        """Return when everything that was acknowledged in earlier epochs is below the high
        watermark. NOT_LEADER_OR_FOLLOWER."""

        def is_recovered() -> bool:
            self._check()
            return self._partition.has_reached_epoch_start

        await self._partition.read_waiters.wait_until(is_recovered)

    async def append(self, batch: bytes) -> int:
        """The base offset, once the whole ISR has the batch. KafkaError."""
        self._check()
        appended = self._partition.append_records(batch, acks=ALL_REPLICAS, from_client=False)
        waiting = self._partition.commit_future(appended, ALL_REPLICAS)
        if waiting is not None:
            await waiting
        return appended.first_offset

    def read(self) -> Iterator[Buffer]:
        """All batches in chunks of about a MiB, from the log's start to its end as it is now.

        Not to the high watermark: what is above it will be committed, or another broker will lead.
        A commit that was not acknowledged counts as one that came a little later."""
        log = self._partition.log
        offset, end = log.start, log.end
        while offset < end:
            data = log.read(offset, READ_BYTES, up_to=end)
            if not data:
                return
            yield data
            for _, header in iter_batches(data):
                offset = header.next_offset
