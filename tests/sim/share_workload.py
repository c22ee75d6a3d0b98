"""The members of a share group in one run, what they need, and the checks of what they did."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.metadata.features import SHARE_VERSION, UpgradeType
from ottla_broker.share_groups.dead_letters import OFFSET_HEADER, PARTITION_HEADER, TOPIC_HEADER
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.records import iter_records
from tests.sim.admin import SimulatedAdmin
from tests.sim.checks import Contents
from tests.sim.client import Workload
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import running_brokers
from tests.sim.history import TopicPartition
from tests.sim.plan import Plan
from tests.sim.reader import committed_batches
from tests.sim.share_group_member import ShareGroupMember
from tests.sim.share_history import ShareHistory, share_violations
from tests.sim.simulation import NewClient

GROUP = "sharers"
GROUP_RESOURCE = 32
SHARE_STATE_TOPIC = "__share_group_state"
DEAD_LETTER_TOPIC = "dlq.sharers"


class ShareGroupAdmin(SimulatedAdmin):
    async def configure_group(self, *, has_dead_letters: bool) -> None:
        """Sets the offset at which the group begins; with `has_dead_letters` also raises
        share.version and sets the dead-letter topic. Called before the first member joins.
        """
        configs = {"share.auto.offset.reset": "earliest"}
        if has_dead_letters:
            configs["errors.deadletterqueue.topic.name"] = DEAD_LETTER_TOPIC

        async def attempt(client: Client) -> bool:
            if has_dead_letters:
                await self.update_feature(client, SHARE_VERSION.name, SHARE_VERSION.highest, UpgradeType.upgrade)
            changes = tuple(
                AlterableConfig(name=name, config_operation=i8(0), value=value) for name, value in configs.items()
            )
            resource = AlterConfigsResource(resource_type=i8(GROUP_RESOURCE), resource_name=GROUP, configs=changes)
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            (result,) = (await self.send_to_controller(client, request)).responses
            raise_for_error(result.error_code, f"config of {GROUP}: {result.error_message}")
            return True

        await self.retry_until_done(f"config of {GROUP}", attempt)


class ShareWorkload:
    def __init__(self, plan: Plan, workload: Workload, random: Random, topic: str) -> None:
        self.history = ShareHistory(workload.history.record_violation, plan.max_deliveries)
        self._has_dead_letters = plan.has_dead_letters
        self._workload = workload
        self._random = random
        self._topic = topic
        self._unfinished: list[tuple[tuple[str, int], int]] = []

    def create_admin(self, create: NewClient) -> ShareGroupAdmin:
        admin: ShareGroupAdmin = create(ShareGroupAdmin, "share-admin")
        return admin

    def create_clients(self, create: NewClient) -> list[Any]:
        member = partial(
            ShareGroupMember,
            shares=self.history,
            group=GROUP,
            topic=self._topic,
            has_dead_letters=self._has_dead_letters,
        )
        return [create(member, f"sharer-{number}") for number in range(self._random.choice((2, 3, 3, 4)))]

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.history.counts)

    # --- after the faults

    def expect_progress(self) -> None:
        """Called when the faults are over: every record that is acknowledged to its producer must
        be finished."""
        self.history.faults_are_over = True
        self._unfinished = [
            (ack.topic_partition, ack.offset + at)
            for ack in self._workload.history.acks
            if ack.topic_partition[0] == self._topic
            for at in range(len(ack.values))
        ]

    def missing_progress(self, cluster: SimulatedCluster) -> list[str]:
        self._unfinished = [one for one in self._unfinished if self.history.is_unfinished(*one)]
        if not self._unfinished:
            return list(self._missing_dead_letters(cluster)) if self._has_dead_letters else []
        tp, offset = self._unfinished[0]
        return [f"{GROUP} do not finish {len(self._unfinished)} records, such as {tp} offset {offset}"]

    def _missing_dead_letters(self, cluster: SimulatedCluster) -> Iterator[str]:
        written = set(find_dead_letters(cluster))
        self.history.counts["dead letter written"] = len(written)
        for tp, offset in self.history.expected_dead_letters():
            if (tp, offset) not in written:
                yield f"no dead letter: {tp} offset {offset} is not in {DEAD_LETTER_TOPIC}"
                return

    def violations(self, contents: Contents) -> list[str]:
        return list(share_violations(self.history, contents))


def find_dead_letters(cluster: SimulatedCluster) -> Iterator[tuple[TopicPartition, int]]:
    """The source records of the dead letters below the high watermarks of their partitions."""
    for _, broker in running_brokers(cluster):
        for partition in broker.partitions:
            if partition.topic == DEAD_LETTER_TOPIC and partition.is_leader:
                data = b"".join(batch for _, batch in committed_batches(partition.log))
                for _, record in iter_records(data):
                    headers = {name: (value or b"").decode() for name, value in record.headers}
                    source = headers[TOPIC_HEADER], int(headers[PARTITION_HEADER])
                    yield source, int(headers[OFFSET_HEADER])
