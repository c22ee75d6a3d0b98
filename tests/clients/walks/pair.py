"""Apache Kafka and Ottla side by side, set up so that nothing happens in them that no step asked for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.clients.asking import KEYS, Talk
from tests.clients.group_questions import settled
from tests.clients.record_questions import ids_given_out
from tests.clients.walks.side import OTHER, Side

NEVER_MS: Final = 1_000_000_000
SETTINGS: Final[dict[str, Any]] = {
    "num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "auto_create_topics_enable": False,
    "log_retention_ms": -1,
    "log_retention_check_interval_ms": NEVER_MS,
    "log_cleaner_backoff_ms": NEVER_MS,
    "log_index_size_max_bytes": 40_960,
    "max_incremental_fetch_session_cache_slots": 100_000,
}
KAFKA_SETTINGS: Final[dict[str, Any]] = {"log_initial_task_delay_ms": NEVER_MS}
KAFKA_PAUSES_S: Final = 0.025


@contextmanager
def both() -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with run_apache_kafka(**SETTINGS, **KAFKA_SETTINGS) as kafka, run_ottla_broker(**SETTINGS) as ottla:
        yield kafka, ottla


async def sides_of(kafka: str, ottla: str) -> list[Side]:
    """Both, with their coordinators loaded."""
    for bootstrap in (kafka, ottla):
        host, _, port = bootstrap.partition(":")
        talk = Talk(host, int(port), "walks", "find_coordinator", 4)
        await settled(talk)
        wanted = {"name": OTHER, "num_partitions": 1, "replication_factor": 1}
        await talk.do("create_topics", topics=[wanted], timeout=10_000)
        await ids_given_out(talk)
        talk.close()
    return [Side(kafka, KAFKA_PAUSES_S), Side(ottla, 0.0)]


async def highest_versions(sides: Sequence[Side]) -> dict[str, int]:
    """By name, what both speak."""
    spoken = [await side.versions() for side in sides]
    return {api: min(each.get(key, (0, -1))[1] for each in spoken) for api, key in KEYS.items()}
