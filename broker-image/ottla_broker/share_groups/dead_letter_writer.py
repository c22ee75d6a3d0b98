"""Writes dead letters of share groups to their topics (KIP-1191).

Writing is not atomic with the state of the source record: after a failed attempt, or a failure of
the leader, a dead letter may be in the topic twice. A dead letter is given up, with a line in the
log, when its topic may not have it, or after ATTEMPTS. It is dropped when the group has no
dead-letter topic any more. Its record is archived in each case.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla_broker.config import (
    ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE,
    ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX,
    Config,
)
from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.coordination.remote_appender import RemoteAppender
from ottla_broker.metadata.features import SHARE_VERSION
from ottla_broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.share_groups.dead_letters import (
    DeadLetterConfig,
    DeadLetters,
    build_dead_letters,
    check_dead_letter_topic,
    split_by_size,
)
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, decode_batch, encode_batch

logger = logging.getLogger(__name__)

DEAD_LETTERS_SINCE: Final = 2
"""The lowest level of `share.version` at which share groups have dead letters."""
ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
BATCH_BYTES: Final = 256 << 10
READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class DeadLetterWriter:
    """`_create_topic` creates the dead-letter topic of this name, and returns when this broker's
    metadata have it. `_now_ms`: wall clock."""

    _config: Config
    _image: MetadataImage
    _partitions: Partitions
    _remote: RemoteAppender
    _create_topic: Callable[[str], Awaitable[None]]
    _now_ms: Callable[[], int]

    def config_of(self, group_id: str) -> DeadLetterConfig:
        """The group's configs of dead letters, without a topic while `share.version` is too low."""
        if self._image.feature_level(SHARE_VERSION) < DEAD_LETTERS_SINCE:
            return DeadLetterConfig()
        return DeadLetterConfig.of_group(self._image.configs.get((GROUP_RESOURCE, group_id), {}))

    async def write(self, group_id: str, source: Partition, letters: DeadLetters) -> None:
        """Returns when the dead letters are replicated, are given up, or have no topic any more."""
        what = f"group {group_id}: dead letters of {source!r}, offsets {letters.first} to {letters.last}"
        pause_s = FIRST_PAUSE_S
        for attempt in range(ATTEMPTS):
            config = self.config_of(group_id)
            if not config.topic:
                return
            try:
                await self._write(group_id, config, source, letters)
                return
            except (KafkaError, OSError) as reason:
                is_hopeless = isinstance(reason, KafkaError) and reason.code is ErrorCode.policy_violation
                if is_hopeless or attempt + 1 == ATTEMPTS:
                    logger.warning("%s are given up: %s", what, reason)
                    return
                logger.info("%s are written again in %.0f s: %s", what, pause_s, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _write(self, group_id: str, config: DeadLetterConfig, source: Partition, letters: DeadLetters) -> None:
        partition_count = await self._prepare_topic(config.topic)
        sources = _read_records(source, letters) if config.copies_records else {}
        records = build_dead_letters(letters, source.topic, source.partition, group_id, sources, now_ms=self._now_ms())
        for batch in split_by_size(records, BATCH_BYTES):
            await self._append(config.topic, source.partition % partition_count, encode_batch(batch))

    async def _prepare_topic(self, topic: str) -> int:
        """The topic's number of partitions. Creates the topic if it does not exist and may be
        created. Raises POLICY_VIOLATION, and the errors of the creation."""
        prefix = self._config(ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX)
        check_dead_letter_topic(topic, prefix, self._image.topic_config(topic) if topic in self._image.topics else None)
        if topic not in self._image.topics:
            if not self._config(ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE):
                raise KafkaError(
                    ErrorCode.policy_violation,
                    f"dead-letter topic {topic!r} does not exist "
                    f"({ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE.name} is false)",
                )
            await self._create_topic(topic)
        return len(self._image.topics[topic].partitions)

    async def _append(self, topic: str, index: int, batch: bytes) -> None:
        """Returns when all in-sync replicas have the batch."""
        partition = self._partitions.get(topic, index)
        if partition is not None and partition.is_leader:
            await PartitionJournal(partition).append(batch)
        else:
            await self._remote.append(topic, batch, index)


def _read_records(source: Partition, letters: DeadLetters) -> dict[int, Record]:
    """The records by offset, without those that are deleted."""
    return {
        record.offset: record
        for record in _iter_records(source, letters)
        if letters.first <= record.offset <= letters.last
    }


def _iter_records(source: Partition, letters: DeadLetters) -> Iterator[Record]:
    log = source.log
    offset = max(letters.first, log.start)
    while offset <= letters.last:
        data = log.read(offset, READ_BYTES, up_to=log.high_watermark, at_least_one=True)
        if not data:
            return
        for at, header in iter_batches(data):
            offset = header.next_offset
            if header.base_offset <= letters.last and not header.is_control:
                yield from decode_batch(data, header, at)
