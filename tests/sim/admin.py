"""Administrators: one whose topics come, change and go, and one who moves partitions and their leadership about while everything runs."""

import asyncio
from collections.abc import Mapping, Sequence
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
from kio.static.primitive import i8, i16, i32

from ottla_broker.wire.client import Client, raise_for_error, to_timedelta_field
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.client import SimulatedClient, World
from tests.sim.history import Place, TopicFate
from tests.sim.processes import SimulatedProcess

TOPIC, SET, PREFERRED = 2, 0, 0
TIMEOUT_S = 3.0  # what brokers are asked to keep to
MOST_PARTITIONS = 6
# What a topic is told to keep to, and nobody's promises hang on.
SETTINGS = {
    "max.message.bytes": ("1048588", "2000000"),
    "segment.bytes": ("4096", "65536"),
    "retention.ms": ("604800000", "-1"),
    "compression.type": ("producer", "zstd"),
}


class SimulatedAdmin(SimulatedClient):
    """What both do: ask the controller, sometimes through a broker that is not."""

    async def ask_controller(self, client: Client, request: Any) -> Any:
        if self.random.randrange(2):
            return await client.send(request)
        return await client.send_to_controller(request)

    def did(self, what: str) -> None:
        self.world.done[what] = self.world.done.get(what, 0) + 1


class Admin(SimulatedAdmin):
    """Topics that come, change and go. `replicas`: of each."""

    def __init__(self, world: World, process: SimulatedProcess, random: Random, replicas: int) -> None:
        super().__init__(world, process, random)
        self._replicas = replicas

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 6))
            number += 1
            name = f"passing-{number}"
            if not await self.create(name, self.random.randrange(1, 4)):
                continue
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(self.random.uniform(0.1, 2))
                await (self._grow if self.random.randrange(2) else self._configure)(name)
            if self.random.randrange(2) and await self.delete(name) and self.random.randrange(2):
                await self.create(name, self.random.randrange(1, 4))  # another topic of that name

    async def create(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
        """Until it is there, or the run is over. Whether one request was enough: others may still come true later."""
        before = self.world.history.topics.get(name)
        fate = TopicFate(second=before is not None)
        self.world.history.topics[name] = fate
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
            answer = await self.ask_controller(client, request)
            code = answer.topics[0].error_code
            if code is not ErrorCode.topic_already_exists or tries == 1:
                raise_for_error(code, f"create {name}: {answer.topics[0].error_message}")
            fate.there = True
            fate.partitions = partitions
            return True

        if not await self.until_done(f"create {name}", attempt):
            return False
        self.did("topic made again" if before is not None else "topic made")
        return tries == 1

    async def delete(self, name: str) -> bool:
        """Whether it is gone and one request was enough."""
        fate = self.world.history.topics[name]
        fate.leaving, fate.there = True, None
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            request = DeleteTopicsRequest(topic_names=(TopicName(name),), timeout=to_timedelta_field(TIMEOUT_S))
            answer = await self.ask_controller(client, request)
            code = answer.responses[0].error_code
            if code is not ErrorCode.unknown_topic_or_partition or tries == 1:
                raise_for_error(code, f"delete {name}: {answer.responses[0].error_message}")
            fate.there = False
            return True

        if not await self.until_done(f"delete {name}", attempt):
            return False
        self.did("topic deleted")
        return tries == 1

    async def _grow(self, name: str) -> None:
        fate = self.world.history.topics[name]
        count = fate.partitions + self.random.randint(1, 2)
        if count > MOST_PARTITIONS:
            return
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            topic = CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=None)
            request = CreatePartitionsRequest(
                topics=(topic,), timeout=to_timedelta_field(TIMEOUT_S), validate_only=False
            )
            (result,) = (await self.ask_controller(client, request)).results
            if result.error_code is not ErrorCode.invalid_partitions or tries == 1:
                raise_for_error(result.error_code, f"grow {name}: {result.error_message}")
            fate.partitions = count
            return True

        if await self.until_done(f"grow {name} to {count}", attempt):
            self.did("topic grown")

    async def _configure(self, name: str) -> None:
        key = self.random.choice(sorted(SETTINGS))
        value = self.random.choice(SETTINGS[key])
        fate = self.world.history.topics[name]
        sure = fate.settings.get(key, value) is not None
        fate.settings[key] = None
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            config = AlterableConfig(name=key, config_operation=i8(SET), value=value)
            resource = AlterConfigsResource(resource_type=i8(TOPIC), resource_name=name, configs=(config,))
            answer = await self.ask_controller(
                client, IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            )
            (result,) = answer.responses
            raise_for_error(result.error_code, f"configure {name}: {result.error_message}")
            return True

        if await self.until_done(f"set {key}={value} of {name}", attempt):
            self.did("setting changed")
            if sure and tries == 1:
                fate.settings[key] = value


class Mover(SimulatedAdmin):
    """Moves partitions of the topics that stay to other brokers, takes some moves back, and gives leadership to those that should have it."""

    def __init__(
        self,
        world: World,
        process: SimulatedProcess,
        random: Random,
        places: Sequence[Place],
        brokers: int,
        replicas: int,
    ) -> None:
        super().__init__(world, process, random)
        self._places = places
        self._brokers = brokers
        self._replicas = replicas

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 5))
            place = self.random.choice(self._places)
            what = self.random.choice((self._move, self._move, self._elect, self._take_back))
            await self._try(what.__name__[1:].replace("_", " "), place, what)

    async def _try(self, doing: str, place: Place, what: Any) -> None:
        """Twice at most: it is no harm when such a wish does not come true."""
        tries = 0

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            await what(client, place)
            return True

        await self.until_done(f"{doing} {place}", attempt, lambda: tries < 2)

    async def _move(self, client: Client, place: Place) -> None:
        replicas = self.random.sample(range(1, self._brokers + 1), self._replicas)
        await self._reassign(client, place, replicas)
        self.world.trace.add_line(f"moves {place} to {replicas}")
        self.did("partition moved")

    async def _take_back(self, client: Client, place: Place) -> None:
        try:
            await self._reassign(client, place, None)
            self.did("move taken back")
        except KafkaError as reason:
            if reason.code is not ErrorCode.no_reassignment_in_progress:
                raise

    async def _reassign(self, client: Client, place: Place, replicas: Sequence[int] | None) -> None:
        wanted = None if replicas is None else tuple(map(BrokerId, replicas))
        partition = ReassignablePartition(partition_index=i32(place[1]), replicas=wanted)
        topic = ReassignableTopic(name=TopicName(place[0]), partitions=(partition,))
        answer = await self.ask_controller(
            client, AlterPartitionReassignmentsRequest(timeout=to_timedelta_field(TIMEOUT_S), topics=(topic,))
        )
        raise_for_error(answer.error_code, f"reassign {place}: {answer.error_message}")
        result = answer.responses[0].partitions[0]
        raise_for_error(result.error_code, f"reassign {place}: {result.error_message}")
        listed = await self.ask_controller(
            client, ListPartitionReassignmentsRequest(timeout=to_timedelta_field(TIMEOUT_S), topics=None)
        )
        raise_for_error(listed.error_code, f"list reassignments: {listed.error_message}")

    async def _elect(self, client: Client, place: Place) -> None:
        one = TopicPartitions(topic=TopicName(place[0]), partitions=(i32(place[1]),))
        answer = await self.ask_controller(
            client,
            ElectLeadersRequest(
                election_type=i8(PREFERRED), topic_partitions=(one,), timeout=to_timedelta_field(TIMEOUT_S)
            ),
        )
        raise_for_error(answer.error_code, "elect leaders")
        result = answer.replica_election_results[0].partition_result[0]
        if result.error_code is not ErrorCode.election_not_needed:
            raise_for_error(result.error_code, f"elect {place}: {result.error_message}")
            self.did("preferred leader elected")
