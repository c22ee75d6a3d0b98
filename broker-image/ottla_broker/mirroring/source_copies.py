"""What a source says of its topics as copies of ours (DescribeConfigs of resource type 102), when it is an Ottla cluster that was our mirror."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.static.primitive import i8

from ottla_broker.metadata.image import MIRRORED_TOPIC_RESOURCE
from ottla_broker.mirroring.lineage import EpochHistory
from ottla_broker.runtime import uuid_from_text, uuid_text
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode

MIRROR: Final = "mirror"
SOURCE_TOPIC: Final = "source.topic"
SOURCE_ID: Final = "source.topic.id"
FAILED_OVER: Final = "failed.over"
ASKED_AT_ONCE: Final = 200  # topics, in one request


@dataclass(frozen=True, slots=True)
class MirroredAtSource:
    """A topic of the source's that is, or was until it failed over, a copy of `source_id`, by the source's mirror of that name."""

    mirror: str
    source_id: UUID
    failed_over: bool


def epoch_history_key(partition: int) -> str:
    return f"{partition}.lineage"


def describe_mirrored_topic(mirror: str, source_topic: str, source_id: UUID, *, failed_over: bool) -> dict[str, str]:
    """What a cluster says of a copy, for `copies_at` of another."""
    return {
        FAILED_OVER: str(failed_over).lower(),
        MIRROR: mirror,
        SOURCE_TOPIC: source_topic,
        SOURCE_ID: uuid_text(source_id),
    }


async def fetch_mirrored_at_source(source: Client, names: Iterable[str]) -> dict[str, MirroredAtSource]:
    """By name, those of them that are copies. Nothing from Apache Kafka, which knows no such resource. OSError, TimeoutError, KafkaError."""
    wanted, found = tuple(names), dict[str, MirroredAtSource]()
    for first in range(0, len(wanted), ASKED_AT_ONCE):
        keys = (MIRROR, SOURCE_ID, FAILED_OVER)
        answer: DescribeConfigsResponse = await source.send(
            DescribeConfigsRequest(resources=tuple(_asked(one, keys) for one in wanted[first : first + ASKED_AT_ONCE]))
        )
        for result in answer.results:
            values = {entry.name: entry.value or "" for entry in result.configs}
            if result.error_code is ErrorCode.none and values.keys() >= set(keys):
                with suppress(ValueError):  # an id that is none
                    found[result.resource_name] = MirroredAtSource(
                        values[MIRROR], uuid_from_text(values[SOURCE_ID]), values[FAILED_OVER] == "true"
                    )
    return found


async def fetch_epoch_history(source: Client, topic: str, partition: int) -> EpochHistory | None:
    """As the partition's leader there tells; None when it says nothing. OSError, TimeoutError, KafkaError."""
    key = epoch_history_key(partition)
    await source.metadata([topic])  # who leads now: another broker would say nothing, and that looks the same
    answer: DescribeConfigsResponse = await source.send_to_leader(
        topic, partition, DescribeConfigsRequest(resources=(_asked(topic, (key,)),))
    )
    (result,) = answer.results
    if result.error_code is not ErrorCode.none:
        return None
    try:
        return next((msgspec.json.decode(entry.value or "", type=EpochHistory) for entry in result.configs), None)
    except msgspec.MsgspecError:
        return None


def _asked(topic: str, keys: tuple[str, ...]) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=i8(MIRRORED_TOPIC_RESOURCE), resource_name=topic, configuration_keys=keys
    )
