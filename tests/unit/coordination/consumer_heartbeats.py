"""Heartbeats of the consumer protocol to the coordinator of group g."""

from typing import Any

from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from ottla_broker.coordination.group_config import ConsumerGroupConfig, GroupCoordinatorConfig
from tests.unit.coordination.one_shard import CoordinatorBroker

NO_INTERVAL = GroupCoordinatorConfig(consumer=ConsumerGroupConfig(assignment_interval_ms=0))


async def send_heartbeat(broker: CoordinatorBroker, member: str, epoch: int, **fields: Any) -> HeartbeatResult:
    """Sends a heartbeat. A member that joins subscribes to t."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",), "owned": {}} | fields
    return await broker.groups.consumer_groups_of("g").heartbeat("g", ConsumerHeartbeat(member, epoch, **fields))


def find_group(broker: CoordinatorBroker) -> ConsumerGroup:
    return broker.groups.consumer_groups_of("g").find_group("g")
