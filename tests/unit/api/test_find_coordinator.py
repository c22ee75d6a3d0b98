"""FindCoordinator, also while `__consumer_offsets` is created or deleted."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.static.primitive import i8

from ottla_broker.api.find_coordinator import GROUP_KEY_TYPE, find_coordinators
from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.wire.errors import ErrorCode
from tests.unit.api.brokers import ME, SmallBroker, context


class DeletingFailureDetector:
    """A failure detector that deletes `__consumer_offsets` while it confirms that brokers run."""

    def __init__(self, broker: SmallBroker) -> None:
        self._broker = broker

    async def wait_until_confirmed(self, _: Iterable[int]) -> None:
        await asyncio.sleep(0)
        self._broker.image.topics.pop(OFFSETS_TOPIC, None)


def find_group_coordinator(broker: SmallBroker) -> FindCoordinatorResponse:
    cast(Any, broker).group_coordinator = SimpleNamespace(partition_of=lambda _: 0)
    request = FindCoordinatorRequest(key_type=i8(GROUP_KEY_TYPE), coordinator_keys=("g",))
    return asyncio.run(find_coordinators(context(broker, 6), request))


def test_coordinator_is_the_leader_of_the_groups_partition(tmp_path: Path) -> None:
    broker = SmallBroker(tmp_path)
    broker.add_topic(OFFSETS_TOPIC)
    broker.register(9092)
    (found,) = find_group_coordinator(broker).coordinators
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.none, ME, 9092)
    broker.close()


def test_coordinator_is_not_available_if_the_topic_is_deleted_meanwhile(tmp_path: Path) -> None:
    broker = SmallBroker(tmp_path)
    broker.add_topic(OFFSETS_TOPIC)
    broker.register(9092)
    cast(Any, broker).failure_detector = DeletingFailureDetector(broker)
    (found,) = find_group_coordinator(broker).coordinators
    assert found.error_code is ErrorCode.coordinator_not_available
    assert "__consumer_offsets-0" in (found.error_message or "")
    broker.close()


def test_coordinator_is_not_available_if_the_created_topic_is_deleted_at_once(tmp_path: Path) -> None:
    broker = SmallBroker(tmp_path)

    async def create_and_delete(name: str) -> None:
        assert name == OFFSETS_TOPIC

    cast(Any, broker).auto_create_topic = create_and_delete
    (found,) = find_group_coordinator(broker).coordinators
    assert found.error_code is ErrorCode.coordinator_not_available
