"""Administrators of mirrors, and clients that delete records."""

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
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.sim.admin import SET, TIMEOUT_S, SimulatedAdmin
from tests.sim.client import Workload
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess

# A leader that does not know its followers' positions yet returns it.
EXPECTED_ERRORS = frozenset({ErrorCode.offset_out_of_range})


class MirrorAdmin(SimulatedAdmin):
    """Configures mirrors of one cluster."""

    async def set_mirror(self, mirror: str, settings: Mapping[str, str]) -> bool:
        """Sets a mirror's settings, retrying until they are acknowledged. False if the run ended
        first.
        """

        async def attempt(client: Client) -> bool:
            configs = tuple(AlterableConfig(name=key, config_operation=i8(SET), value=v) for key, v in settings.items())
            resource = AlterConfigsResource(resource_type=i8(MIRROR_RESOURCE), resource_name=mirror, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            (result,) = (await self.send_to_controller(client, request)).responses
            raise_for_error(result.error_code, f"set {mirror}: {result.error_message}")
            return True

        done = await self.retry_until_done(f"set {mirror} to {dict(settings)}", attempt)
        if done:
            self.count(f"mirror set to {settings.get('role', 'Replicate')}")
        return done


class RecordDeleter(SimulatedAdmin):
    """Deletes records that every group has committed; with `inside`, also up to offsets inside of
    batches.
    """

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        topic_partitions: Sequence[TopicPartition],
        groups: Sequence[str],
        inside: bool,
    ) -> None:
        super().__init__(workload, process, random)
        self._topic_partitions = topic_partitions
        self._groups = groups
        self._inside = inside

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.5, 4))
            tp = self.random.choice(self._topic_partitions)
            most = min(self.workload.history.committed_offsets.get((group, tp), 0) for group in self._groups)
            ends = [
                one.offset
                for one in self.workload.history.commits
                if one.topic_partition == tp and 0 < one.offset <= most
            ]
            if ends:
                await self._delete_records(
                    tp, self.random.randint(1, most) if self._inside else self.random.choice(ends)
                )

    async def _delete_records(self, tp: TopicPartition, offset: int) -> None:
        """Tries at most twice: it does no harm if the operation fails."""
        tries = 0
        deleted = self.workload.history.deletion_requests
        deleted[tp] = max(offset, deleted.get(tp, 0))

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            leader = await self.leader(client, tp)
            self.forget_leader(tp)
            partition = DeleteRecordsPartition(partition_index=i32(tp[1]), offset=i64(offset))
            topic = DeleteRecordsTopic(name=TopicName(tp[0]), partitions=(partition,))
            request = DeleteRecordsRequest(topics=(topic,), timeout=to_timedelta_field(TIMEOUT_S))
            answer = await client.send(request, broker=leader.broker)
            result = answer.topics[0].partitions[0]
            raise_for_error(result.error_code, f"delete records of {tp} below {offset}: {result.error_code.name}")
            self.workload.trace.add_line(f"deletes records of {tp} below {offset}")
            self.count("records deleted")
            return True

        await self.retry_until_done(
            f"delete records of {tp} below {offset}", attempt, lambda: tries < 2, EXPECTED_ERRORS
        )
