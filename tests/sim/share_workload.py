"""The members of a share group in one run, what they need, and what is checked of them."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.wire.client import Client, raise_for_error
from tests.sim.admin import SimulatedAdmin
from tests.sim.checks import Contents
from tests.sim.client import Workload
from tests.sim.plan import Plan
from tests.sim.processes import SimulatedProcess
from tests.sim.share_group_member import ShareGroupMember
from tests.sim.share_history import ShareHistory, share_violations

GROUP = "sharers"
GROUP_RESOURCE = 32
SHARE_STATE_TOPIC = "__share_group_state"

NewClient = Callable[[Callable[[Workload, SimulatedProcess, Random], Any], str], Any]
"""Creates a client in a process of its own, of the given name."""


class ShareGroupAdmin(SimulatedAdmin):
    async def begin_at_earliest(self) -> None:
        """Sets where the group begins, before its first member joins."""

        async def attempt(client: Client) -> bool:
            config = AlterableConfig(name="share.auto.offset.reset", config_operation=i8(0), value="earliest")
            resource = AlterConfigsResource(resource_type=i8(GROUP_RESOURCE), resource_name=GROUP, configs=(config,))
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            (result,) = (await self.send_to_controller(client, request)).responses
            raise_for_error(result.error_code, f"config of {GROUP}: {result.error_message}")
            return True

        await self.retry_until_done(f"config of {GROUP}", attempt)


class ShareWorkload:
    def __init__(self, plan: Plan, workload: Workload, random: Random, topic: str) -> None:
        self.history = ShareHistory(workload.history.record_violation, plan.max_deliveries)
        self._workload = workload
        self._random = random
        self._topic = topic
        self._wanted: list[tuple[tuple[str, int], int]] = []

    def create_admin(self, create: NewClient) -> ShareGroupAdmin:
        admin: ShareGroupAdmin = create(ShareGroupAdmin, "share-admin")
        return admin

    def create_clients(self, create: NewClient) -> list[Any]:
        member = partial(ShareGroupMember, shares=self.history, group=GROUP, topic=self._topic)
        return [create(member, f"sharer-{number}") for number in range(self._random.choice((2, 3, 3, 4)))]

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.history.counts)

    # --- after the faults

    def expect_progress(self) -> None:
        """Called when the faults are over: every record that is acknowledged to its producer must
        be finished."""
        self.history.faults_are_over = True
        self._wanted = [
            (ack.topic_partition, ack.offset + at)
            for ack in self._workload.history.acks
            if ack.topic_partition[0] == self._topic
            for at in range(len(ack.values))
        ]

    def missing_progress(self) -> list[str]:
        self._wanted = [one for one in self._wanted if self.history.unfinished(*one)]
        if not self._wanted:
            return []
        tp, offset = self._wanted[0]
        return [f"{GROUP} do not finish {len(self._wanted)} records, such as {tp} offset {offset}"]

    def violations(self, contents: Contents) -> list[str]:
        return list(share_violations(self.history, contents))
