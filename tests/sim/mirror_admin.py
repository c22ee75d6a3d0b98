"""Administrators of mirrors, and those whose records go before they are old."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.metadata.image import MIRROR_RESOURCE
from ottla_broker.wire.client import Client, raise_for_error, to_timedelta_field
from ottla_broker.wire.errors import ErrorCode
from tests.sim.admin import SET, TIMEOUT_S, SimulatedAdmin
from tests.sim.client import World
from tests.sim.history import Place
from tests.sim.processes import SimulatedProcess

OVERTAKEN = frozenset({ErrorCode.offset_out_of_range})  # a leader that does not know yet how far its followers are


class MirrorAdmin(SimulatedAdmin):
    """Sets mirrors of one cluster."""

    async def set(self, mirror: str, settings: Mapping[str, str]) -> bool:
        """Until it is acknowledged."""

        async def attempt(client: Client) -> bool:
            configs = tuple(AlterableConfig(name=key, config_operation=i8(SET), value=v) for key, v in settings.items())
            resource = AlterConfigsResource(resource_type=i8(MIRROR_RESOURCE), resource_name=mirror, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            (result,) = (await self.ask_controller(client, request)).responses
            raise_for_error(result.error_code, f"set {mirror}: {result.error_message}")
            return True

        done = await self.until_done(f"set {mirror} to {dict(settings)}", attempt)
        self.did(f"mirror set to {settings.get('role', 'Replicate')}")
        return done


class Trimmer(SimulatedAdmin):
    """Deletes records that every group has committed. `inside`: of batches too."""

    def __init__(
        self,
        world: World,
        process: SimulatedProcess,
        random: Random,
        places: Sequence[Place],
        groups: Sequence[str],
        inside: bool,
    ) -> None:
        super().__init__(world, process, random)
        self._places = places
        self._groups = groups
        self._inside = inside

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 4))
            place = self.random.choice(self._places)
            most = min(self.world.history.committed.get((group, place), 0) for group in self._groups)
            ends = [one.offset for one in self.world.history.commits if one.place == place and 0 < one.offset <= most]
            if ends:
                await self._trim(place, self.random.randint(1, most) if self._inside else self.random.choice(ends))

    async def _trim(self, place: Place, offset: int) -> None:
        """Twice at most: it is no harm when such a wish does not come true."""
        tries = 0
        deleted = self.world.history.deleted
        deleted[place] = max(offset, deleted.get(place, 0))

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            leader = await self.leader(client, place)
            self.forget_leader(place)
            partition = DeleteRecordsPartition(partition_index=i32(place[1]), offset=i64(offset))
            topic = DeleteRecordsTopic(name=TopicName(place[0]), partitions=(partition,))
            request = DeleteRecordsRequest(topics=(topic,), timeout=to_timedelta_field(TIMEOUT_S))
            answer = await client.send(request, broker=leader.broker)
            result = answer.topics[0].partitions[0]
            raise_for_error(result.error_code, f"delete records of {place} below {offset}: {result.error_code.name}")
            self.world.trace.add_line(f"deletes records of {place} below {offset}")
            self.did("records deleted")
            return True

        await self.until_done(f"delete records of {place} below {offset}", attempt, lambda: tries < 2, OVERTAKEN)
