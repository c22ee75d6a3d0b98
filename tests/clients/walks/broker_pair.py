"""Apache Kafka and Ottla, configured so that only steps change their state."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from tests.clients.api_session import KEYS, ApiSession
from tests.clients.group_cases import wait_for_coordinators
from tests.clients.producer_cases import wait_for_producer_ids
from tests.clients.secured_pair import SecuredBroker, run_secured_pair
from tests.clients.transaction_cases import wait_for_coordinator
from tests.clients.walks.access_steps import USERS
from tests.clients.walks.broker_side import HELPER_NAME, BrokerSide

NEVER_MS: Final = 1_000_000_000
SETTINGS: Final[dict[str, Any]] = {
    "num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": NEVER_MS,
    "auto_create_topics_enable": False,
    "log_retention_ms": -1,
    "log_retention_check_interval_ms": NEVER_MS,
    "log_cleaner_backoff_ms": NEVER_MS,
    "log_index_size_max_bytes": 40_960,
    "group_streams_initial_rebalance_delay_ms": 0,
    "max_incremental_fetch_session_cache_slots": 100_000,
}
KAFKA_SETTINGS: Final[dict[str, Any]] = {"log_initial_task_delay_ms": NEVER_MS}
KAFKA_PROPAGATION_S: Final = 0.025
"""How long a change of Kafka's controller may take to reach all components of its broker."""


def run_both_brokers(kafka: str) -> AbstractContextManager[tuple[SecuredBroker, SecuredBroker]]:
    """Runs Apache Kafka of version `kafka`, and Ottla."""
    return run_secured_pair(USERS, KAFKA_SETTINGS, kafka, **SETTINGS)


async def connect_sides(kafka: SecuredBroker, ottla: SecuredBroker) -> list[BrokerSide]:
    """Connects to both brokers and waits until their coordinators have loaded."""
    for side in (kafka, ottla):
        session = ApiSession(side.broker.host, side.broker.port, "walks", "find_coordinator", 4)
        await wait_for_coordinators(session)
        await wait_for_coordinator(session, "walks", 1)
        wanted = {"name": HELPER_NAME, "num_partitions": 1, "replication_factor": 1}
        await session.send("create_topics", topics=[wanted], timeout=10_000)
        await wait_for_producer_ids(session)
        session.close()
    return [BrokerSide(kafka.open_as, KAFKA_PROPAGATION_S), BrokerSide(ottla.open_as, 0.0)]


async def highest_versions(sides: Sequence[BrokerSide]) -> dict[str, int]:
    """The highest version of each API that both support, by name; −1 if one side lacks the API."""
    spoken = [await side.versions() for side in sides]
    return {api: min(each.get(key, (0, -1))[1] for each in spoken) for api, key in KEYS.items()}
