"""Dead letters of share groups (KIP-1191): the records of a group's dead-letter topic. Pure.

A dead letter has headers that name the source record, the group and the reason. It has the key,
value and headers of the source record only where the group copies records.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla_broker.config import (
    ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE,
    ERRORS_DEADLETTERQUEUE_GROUP_ENABLE,
    ERRORS_DEADLETTERQUEUE_TOPIC_NAME,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, estimate_size

TOPIC_HEADER: Final = "__dlq.errors.topic"
PARTITION_HEADER: Final = "__dlq.errors.partition"
OFFSET_HEADER: Final = "__dlq.errors.offset"
GROUP_HEADER: Final = "__dlq.errors.group"
DELIVERY_COUNT_HEADER: Final = "__dlq.errors.delivery.count"
MESSAGE_HEADER: Final = "__dlq.errors.message"
INTERNAL_PREFIX: Final = "__"
LETTER_BYTES: Final = 16
"""Added to the estimated size of each record, so that batches are smaller than allowed rather than
larger."""


class DeadLetterReason(StrEnum):
    """The texts of MESSAGE_HEADER. `unknown`: no header. The leader has changed, and the reason is
    not part of the stored state.
    """

    rejected = "The record was rejected by a member of the share group."
    delivery_limit = "The record was delivered as often as the share group allows."
    unknown = ""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records of one source partition that become dead letters: offsets from `first` to `last`,
    both included."""

    first: int
    last: int
    delivery_count: int
    reason: DeadLetterReason


@dataclass(frozen=True, slots=True)
class DeadLetterConfig:
    """A share group's configs of dead letters. `topic`: empty if the group has no dead-letter
    topic."""

    topic: str = ""
    copies_records: bool = False

    @classmethod
    def of_group(cls, group_configs: Mapping[str, str]) -> "DeadLetterConfig":
        topic = group_configs.get(ERRORS_DEADLETTERQUEUE_TOPIC_NAME.name, "").strip()
        text = group_configs.get(ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE.name)
        return cls(topic, text is not None and ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE.parse(text))


def check_dead_letter_topic(topic: str, prefix: str, topic_config: Mapping[str, str] | None) -> None:
    """Raises POLICY_VIOLATION for a topic that may not get dead letters: members of the group cause
    writes to it, whether or not they are authorized to write to it. `topic_config`: the configs of
    the topic, None while it does not exist."""
    if topic.startswith(INTERNAL_PREFIX) or not topic.startswith(prefix):
        raise KafkaError(
            ErrorCode.policy_violation,
            f"dead-letter topic {topic!r}: its name must begin with {prefix!r} "
            "(errors.deadletterqueue.topic.name.prefix) and not with '__'",
        )
    if topic_config is not None:
        setting = ERRORS_DEADLETTERQUEUE_GROUP_ENABLE
        text = topic_config.get(setting.name)
        if text is None or not setting.parse(text):
            raise KafkaError(ErrorCode.policy_violation, f"dead-letter topic {topic!r}: {setting.name} is not true")


def build_dead_letters(
    letters: DeadLetters, topic: str, partition: int, group_id: str, sources: Mapping[int, Record], now_ms: int
) -> Iterator[Record]:
    """One dead letter for each offset. `topic`, `partition`: of the source. `sources`: the source
    records by offset; those that are missing, because they are not copied or were deleted, leave
    key and value null."""
    for offset in range(letters.first, letters.last + 1):
        source = sources.get(offset)
        fields = {
            TOPIC_HEADER: topic,
            PARTITION_HEADER: str(partition),
            OFFSET_HEADER: str(offset),
            GROUP_HEADER: group_id,
            DELIVERY_COUNT_HEADER: str(letters.delivery_count),
        }
        if letters.reason is not DeadLetterReason.unknown:
            fields[MESSAGE_HEADER] = letters.reason.value
        headers = tuple((name, text.encode()) for name, text in fields.items())
        if source is None:
            yield Record(now_ms, None, None, headers)
        else:
            yield Record(now_ms, source.key, source.value, (*source.headers, *headers))


def split_by_size(records: Iterable[Record], max_bytes: int) -> Iterator[list[Record]]:
    """Batches of about `max_bytes` at most, with one record at least."""
    batch: list[Record] = []
    size = 0
    for record in records:
        record_size = LETTER_BYTES + estimate_size(record)
        if batch and size + record_size > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_size
    if batch:
        yield batch
