"""Administrators, of whom one creates, changes and deletes topics and one reassigns partitions and
elects leaders.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.types import BrokerId, TopicName
from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.static.primitive import i8, i16, i32

from ottla_broker.metadata.features import UpgradeType
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.sim.client import SimulatedClient, Workload
from tests.sim.history import ExpectedTopic, TopicPartition
from tests.sim.processes import SimulatedProcess

TOPIC, SET, PREFERRED = 2, 0, 0  # resource type, config operation, election type
TIMEOUT_S = 3.0  # of requests
MAX_PARTITIONS = 6
# Topic settings to change. Only `check_settings` depends on their values.
SETTINGS = {
    "max.message.bytes": ("1048588", "2000000"),
    "segment.bytes": ("4096", "65536"),
    "retention.ms": ("604800000", "-1"),
    "compression.type": ("producer", "zstd"),
}


class SimulatedAdmin(SimulatedClient):
    """Sends requests to the controller, sometimes through another broker."""

    async def send_to_controller(self, client: Client, request: Any) -> Any:
        if self.random.randrange(2):
            return await client.send(request)
        return await client.send_to_controller(request)

    async def update_feature(self, client: Client, name: str, level: int, upgrade_type: UpgradeType) -> None:
        key = FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(upgrade_type))
        request = UpdateFeaturesRequest(timeout=to_timedelta_field(3), feature_updates=(key,), validate_only=False)
        answer = await self.send_to_controller(client, request)
        raise_for_error(answer.error_code, f"{name} {level}: {answer.error_message}")

    def count(self, what: str) -> None:
        self.workload.counts[what] = self.workload.counts.get(what, 0) + 1


class TopicAdmin(SimulatedAdmin):
    """Creates, changes and deletes topics with `replicas` replicas."""

    def __init__(self, workload: Workload, process: SimulatedProcess, random: Random, replicas: int) -> None:
        super().__init__(workload, process, random)
        self._replicas = replicas

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 6))
            number += 1
            name = f"passing-{self.name[-1]}-{number}"
            if not await self.create(name, self.random.randrange(1, 4)):
                continue
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(self.random.uniform(0.1, 2))
                await (self._add_partitions if self.random.randrange(2) else self._configure)(name)
            if self.random.randrange(2) and await self.delete(name) and self.random.randrange(2):
                await self.create(name, self.random.randrange(1, 4))  # a new topic with the same name

    async def create(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
        """Creates a topic, retrying until it exists or the run is over.

        Returns True if one request was enough; otherwise earlier requests may still be executed
        later.
        """
        before = self.workload.history.topics.get(name)
        topic_state = ExpectedTopic(is_recreated=before is not None)
        self.workload.history.topics[name] = topic_state
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            topic = CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(self._replicas),
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()),
            )
            request = CreateTopicsRequest(topics=(topic,), timeout=to_timedelta_field(TIMEOUT_S), validate_only=False)
            answer = await self.send_to_controller(client, request)
            code = answer.topics[0].error_code
            if code is not ErrorCode.topic_already_exists or tries == 1:
                raise_for_error(code, f"create {name}: {answer.topics[0].error_message}")
            topic_state.exists = True
            topic_state.partitions = partitions
            return True

        if not await self.retry_until_done(f"create {name}", attempt):
            return False
        self.count("topic recreated" if before is not None else "topic created")
        return tries == 1

    async def delete(self, name: str) -> bool:
        """Deletes a topic, retrying. Returns True if one request was enough."""
        topic_state = self.workload.history.topics[name]
        topic_state.deletion_requested, topic_state.exists = True, None
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            request = DeleteTopicsRequest(topic_names=(TopicName(name),), timeout=to_timedelta_field(TIMEOUT_S))
            answer = await self.send_to_controller(client, request)
            code = answer.responses[0].error_code
            if code is not ErrorCode.unknown_topic_or_partition or tries == 1:
                raise_for_error(code, f"delete {name}: {answer.responses[0].error_message}")
            if code is ErrorCode.none:  # a former controller may only say that it does not know the topic
                topic_state.exists = False
            return True

        if not await self.retry_until_done(f"delete {name}", attempt):
            return False
        self.count("topic deleted")
        return tries == 1

    async def _add_partitions(self, name: str) -> None:
        topic_state = self.workload.history.topics[name]
        count = topic_state.partitions + self.random.randint(1, 2)
        if count > MAX_PARTITIONS:
            return
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            topic = CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=None)
            request = CreatePartitionsRequest(
                topics=(topic,), timeout=to_timedelta_field(TIMEOUT_S), validate_only=False
            )
            (result,) = (await self.send_to_controller(client, request)).results
            if result.error_code is not ErrorCode.invalid_partitions or tries == 1:
                raise_for_error(result.error_code, f"grow {name}: {result.error_message}")
            topic_state.partitions = count
            return True

        if await self.retry_until_done(f"grow {name} to {count}", attempt):
            self.count("partitions added")

    async def _configure(self, name: str) -> None:
        key = self.random.choice(sorted(SETTINGS))
        value = self.random.choice(SETTINGS[key])
        topic_state = self.workload.history.topics[name]
        is_value_known = topic_state.settings.get(key, value) is not None
        topic_state.settings[key] = None
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            config = AlterableConfig(name=key, config_operation=i8(SET), value=value)
            resource = AlterConfigsResource(resource_type=i8(TOPIC), resource_name=name, configs=(config,))
            answer = await self.send_to_controller(
                client, IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            )
            (result,) = answer.responses
            raise_for_error(result.error_code, f"configure {name}: {result.error_message}")
            return True

        if await self.retry_until_done(f"set {key}={value} of {name}", attempt):
            self.count("config changed")
            if is_value_known and tries == 1:
                topic_state.settings[key] = value


class ReassignmentAdmin(SimulatedAdmin):
    """Moves partitions of permanent topics, cancels some moves, and elects preferred leaders."""

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        topic_partitions: Sequence[TopicPartition],
        brokers: int,
        replicas: int,
    ) -> None:
        super().__init__(workload, process, random)
        self._topic_partitions = topic_partitions
        self._brokers = brokers
        self._replicas = replicas

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 5))
            tp = self.random.choice(self._topic_partitions)
            operation = self.random.choice((self._move, self._move, self._elect, self._cancel_move))
            await self._try_twice(operation.__name__[1:].replace("_", " "), tp, operation)

    async def _try_twice(
        self, doing: str, tp: TopicPartition, operation: Callable[[Client, TopicPartition], Awaitable[None]]
    ) -> None:
        """Tries at most twice: it does no harm if the operation fails."""
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            await operation(client, tp)
            return True

        await self.retry_until_done(f"{doing} {tp}", attempt, lambda: tries < 2)

    async def _move(self, client: Client, tp: TopicPartition) -> None:
        replicas = self.random.sample(range(1, self._brokers + 1), self._replicas)
        await self._reassign(client, tp, replicas)
        self.workload.trace.add_line(f"moves {tp} to {replicas}")
        self.count("partition moved")

    async def _cancel_move(self, client: Client, tp: TopicPartition) -> None:
        try:
            await self._reassign(client, tp, None)
            self.count("move cancelled")
        except KafkaError as reason:
            if reason.code is not ErrorCode.no_reassignment_in_progress:
                raise

    async def _reassign(self, client: Client, tp: TopicPartition, replicas: Sequence[int] | None) -> None:
        wanted = None if replicas is None else tuple(map(BrokerId, replicas))
        partition = ReassignablePartition(partition_index=i32(tp[1]), replicas=wanted)
        topic = ReassignableTopic(name=TopicName(tp[0]), partitions=(partition,))
        answer = await self.send_to_controller(
            client, AlterPartitionReassignmentsRequest(timeout=to_timedelta_field(TIMEOUT_S), topics=(topic,))
        )
        raise_for_error(answer.error_code, f"reassign {tp}: {answer.error_message}")
        result = answer.responses[0].partitions[0]
        raise_for_error(result.error_code, f"reassign {tp}: {result.error_message}")
        listed = await self.send_to_controller(
            client, ListPartitionReassignmentsRequest(timeout=to_timedelta_field(TIMEOUT_S), topics=None)
        )
        raise_for_error(listed.error_code, f"list reassignments: {listed.error_message}")

    async def _elect(self, client: Client, tp: TopicPartition) -> None:
        one = TopicPartitions(topic=TopicName(tp[0]), partitions=(i32(tp[1]),))
        answer = await self.send_to_controller(
            client,
            ElectLeadersRequest(
                election_type=i8(PREFERRED), topic_partitions=(one,), timeout=to_timedelta_field(TIMEOUT_S)
            ),
        )
        raise_for_error(answer.error_code, "elect leaders")
        result = answer.replica_election_results[0].partition_result[0]
        if result.error_code is not ErrorCode.election_not_needed:
            raise_for_error(result.error_code, f"elect {tp}: {result.error_message}")
            self.count("preferred leader elected")
