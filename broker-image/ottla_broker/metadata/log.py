"""The metadata log as its leader writes it and as every broker replays it.

Committing means: appended to `__cluster_metadata`, fsynced, below the high watermark, applied to the image; in that order. Whoever
awaits `commit` may therefore tell a client so.
"""

from collections.abc import Callable, Iterator, Sequence

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import Changes, Image
from ottla_broker.metadata.records import MetadataRecord, decode, encode
from ottla_broker.runtime import Runtime
from ottla_broker.wire.records import Record, decode_all, encode_batch

READ_BYTES = 1 << 20


class MetadataLog:
    """`publish` is called with what a commit changed, right after the image was changed, before the committer goes on."""

    def __init__(
        self, log: PartitionLog, image: Image, runtime: Runtime, epoch: int, publish: Callable[[Changes], None]
    ) -> None:
        self._log = log
        self._image = image
        self._runtime = runtime
        self._epoch = epoch
        self._publish = publish

    def replay(self) -> Changes:
        """Applies everything that the log holds to the image. UNSUPPORTED_VERSION when it holds records of a newer version."""
        return self._image.apply(self._records(self._image.end))

    def _records(self, offset: int) -> Iterator[tuple[int, MetadataRecord]]:
        while offset < self._log.end:
            data = self._log.read(offset, READ_BYTES, up_to=self._log.end)
            for header, record in decode_all(data):
                if record.value is not None and not header.is_control:
                    yield record.offset, decode(record.value)
                offset = header.next_offset

    def hears_majority(self, within_s: float) -> bool:
        return True

    async def commit(self, records: Sequence[MetadataRecord]) -> Changes:
        """All of `records` or none (one batch). KAFKA_STORAGE_ERROR when the disk refuses."""
        now_ms = self._runtime.now_ms()
        batch = encode_batch([Record(now_ms, None, encode(record)) for record in records])
        appended = self._log.append_as_leader(batch, leader_epoch=self._epoch, now_ms=now_ms, from_client=False)
        await self._log.synced(appended.last_offset + 1)
        self._log.advance_high_watermark(appended.last_offset + 1)
        changes = self._image.apply(zip(range(appended.first_offset, appended.last_offset + 1), records, strict=True))
        self._publish(changes)
        return changes
