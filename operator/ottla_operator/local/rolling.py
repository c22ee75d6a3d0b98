"""Changed settings of running brokers: those that can change do, for the others brokers are restarted one after the other, by live ISR data."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import cluster, configs, elections, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import list_partition_states
from ottla_operator.kafka.elections import ElectionType
from ottla_operator.local.brokers import Brokers
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.memory import Memory
from ottla_operator.plan.roll import (
    BrokerState,
    RestartBroker,
    RollBlocked,
    RollComplete,
    RollStep,
    next_roll_step,
    step_without_partitions,
)
from ottla_operator.plan.settings import Settings, plan_config_changes

BACK_WITHIN_S = 15.0  # then people are told what the roll waits for


@dataclass(slots=True)
class Rolling:
    name: str
    brokers: Brokers
    memory: Memory
    board: LiveView
    waits_for_broker: bool = False
    """Whether it waits for one to come back, so that nothing else should be begun."""
    _refused: dict[str, str] = field(default_factory=dict)
    """Settings with values that running brokers did not take."""
    _restarted: bool = True
    """Since preferred replicas were last given the lead; brokers that have just been started are as after a roll."""
    _waiting_since: float | None = None
    _said: str = ""

    async def step(self, link: KafkaClient, wanted: Collection[int]) -> bool:
        """Does what can be done now; whether nothing is left."""
        self.waits_for_broker = False
        ours = {id_: it for id_, it in self.brokers.by_id.items() if id_ in wanted}
        restart = await self._change_running(link, ours.keys())
        found = await cluster.describe_cluster(link) if restart else None
        up = {it.id for it in found.brokers} if found else set()
        states = [
            BrokerState(id_, it.ready and id_ in up, ", ".join(restart.get(id_, ())), is_registered=id_ in up)
            for id_, it in sorted(self.brokers.by_id.items())
            if id_ in ours or (it.ready and id_ in up)
        ]
        match step_without_partitions(states) or await _by_partitions(
            link, states, found.controller if found else None
        ):
            case RollComplete():
                self._waiting_since = None
                return True
            case RestartBroker(broker, why):
                self._waiting_since = None
                self.board.say(f"broker {self.name}-{broker} is started again with its new settings ({why})", "info")
                self._restarted = True
                await self.brokers.by_id[broker].restart()
                self.waits_for_broker = True
            case RollBlocked(down, blocked_by):
                self.waits_for_broker = bool(down)
                why = f"broker {', '.join(map(str, down))} has not come back" if down else str(blocked_by[0])
                self._say_when_it_lasts(why)
        return False

    async def give_back(self, link: KafkaClient) -> bool:
        """After starts and restarts, lets preferred replicas lead again once all are in sync; whether that is done."""
        if not self._restarted:
            return True
        every = await topics.list_topics(link)
        if cluster.find_partition_problems(every, await reassignments.list_reassignments(link)):
            return False
        await elections.elect_preferred_leaders(link, elections.find_partitions_to_elect(every, ElectionType.preferred))
        self._restarted = False
        return True

    async def _change_running(self, link: KafkaClient, wanted: Collection[int]) -> dict[int, tuple[str, ...]]:
        """Sets what running brokers take; why each of the others has to be restarted."""
        started = {id_: self.brokers.by_id[id_].started for id_ in wanted}
        plans = {id_: self._without_refused(self.brokers.by_id[id_].plan.settings, started[id_]) for id_ in wanted}
        if all(started[it] == plans[it] for it in wanted) and not self.memory.settings:
            return {}
        ready = next((it.plan.id for it in self.brokers.ready), None)
        changeable = await configs.list_dynamic_broker_configs(link, ready) if ready is not None else set()
        found = plan_config_changes(started, plans, changeable, self.memory.settings)
        for key, value in found.to_set.items():
            try:
                await configs.alter_default_broker_configs(link, {key: value}, ())
            except KafkaError as error:
                if error.code not in configs.INVALID_VALUE_ERRORS:
                    raise
                self._refused[key] = value
                self.board.say(f"cluster {self.name}: {self.brokers.in_the_files(str(error))}", "bad")
                continue
            self.memory.settings[key] = value
            self.memory.save()
            self.board.say(f"cluster {self.name}: {key}={value}, without a restart", "info")
        if found.to_unset:
            await configs.alter_default_broker_configs(link, {}, found.to_unset)
            for key in found.to_unset:
                del self.memory.settings[key]
            self.memory.save()
        return dict(found.restarts)

    def _without_refused(self, wanted: Settings, started: Settings | None) -> Settings:
        """A value that running brokers have refused would stop one that is started with it: it is left as it was."""
        kept = {key: value for key, value in wanted.items() if self._refused.get(key) != value}
        return {**kept, **{key: (started or {})[key] for key in wanted.keys() - kept if key in (started or {})}}

    def _say_when_it_lasts(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since >= BACK_WITHIN_S and self._said != why:
            self._said = why
            self.board.say(f"cluster {self.name}: no broker is restarted for now: {why}", "warn")


async def _by_partitions(link: KafkaClient, states: list[BrokerState], controller: int | None) -> RollStep:
    return next_roll_step(
        states, await list_partition_states(link, [it.id for it in states if it.is_ready]), controller
    )
