"""How a run with two clusters ends: everything comes to rest, and then it is seen what has become of the records."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.sim.appended import appended_are_there_once_and_in_order, not_appended
from tests.sim.checks import broken_promises
from tests.sim.client import World
from tests.sim.copies import (
    acknowledged_are_there_or_saved,
    contents_of,
    copies_are_logs_of_their_source,
    led,
    logs_are_one,
    out_of_step,
    own_records_begin_behind,
    saved_in,
    without_what_went,
)
from tests.sim.history import History, Place
from tests.sim.mirror_stage import BACK, THERE, Stage
from tests.sim.replicas import at_rest, metadata_are_equal, replicas_are_equal
from tests.sim.scenario import TOPIC
from tests.sim.simulation import Director
from tests.sim.standing import newest_image, unwell

CONVERGES_WITHIN_S = 120.0


class Ending:
    def __init__(self, stage: Stage, director: Director) -> None:
        self._stage = stage
        self._director = director

    async def converged(self) -> list[str]:
        """Both clusters are well, everybody who may write gets on, and the copies are what they should be or say why not."""
        acks = [
            (world.history, name, world.history.acks_of[name])
            for world in self._worlds()
            for name in dict.fromkeys(world.history.sent.values())
            if name.startswith("producer" if world is self._stage.at_source else "taker")
        ]
        reached = {place: one.log.high_watermark for place, one in led(self._stage.source).items()}

        def missing() -> list[str]:
            return [
                *(f"{name} is silent" for history, name, count in acks if history.acks_of[name] <= count),
                *self._ill(),
                *self._behind(reached),
            ]

        return await self._until_nothing(missing, "no convergence")

    def _worlds(self) -> list[World]:
        """Where producers may write in the end."""
        found = [] if self._stage.plan.comes_home else [self._stage.at_source]
        return found + ([self._stage.at_target] if self._stage.plan.fails_over or self._stage.plan.appended else [])

    def _ill(self) -> list[str]:
        found: list[str] = []
        for cluster in (self._stage.source, self._stage.target):
            image = newest_image(cluster)
            found += [f"{broker.host} is down" for broker in cluster if not broker.is_serving]
            found += [f"no {cluster.hosts} runs"] if image is None else unwell(image)
        return found

    def _behind(self, reached: Mapping[Place, int]) -> list[str]:
        """Copies that have not come as far as their source was when the faults were over, and do not say why."""
        if self._stage.plan.fails_over or self._stage.plan.appended:
            return []
        found = {copy.place: copy for copy in self._stage.copies()}
        return [
            f"the copy of {place} has not come to {end}"
            for place, end in reached.items()
            if place[0] == TOPIC
            and ((copy := found.get(place)) is None or (copy.led is not None and copy.led.log.end < end))
            and not (copy is not None and copy.known.stopped and not self._stage.plan.resyncs)
        ]

    async def _until_nothing(self, missing: Callable[[], list[str]], otherwise: str) -> list[str]:
        return await self._director.until_nothing(
            missing,
            CONVERGES_WITHIN_S,
            otherwise,
            lost=lambda: bool(self._stage.problems() or self._stage.trace.problems),
            clusters=(self._stage.source, self._stage.target),
        )

    def _unfinished(self) -> list[str]:
        """What moves still, and what is not as it should be when nothing does."""
        now_s, resyncs = self._stage.loop.time(), self._stage.plan.resyncs
        found = [*at_rest(self._stage.source), *at_rest(self._stage.target), *self._ill()]
        if self._stage.plan.appended:
            if not self._stage.plan.fails_over:
                found += not_appended(
                    self._stage.source, self._stage.fed(), may_stop=self._stage.plan.forgets and not resyncs
                )
            else:
                found += [
                    f"{one.place} is {one.status}"
                    for one in self._stage.fed()
                    if one.status is None or one.status.state != "FailedOver"
                ]
        elif not self._stage.plan.fails_over:
            found += out_of_step(
                self._stage.source,
                self._stage.target,
                THERE,
                now_s,
                may_stop=not resyncs,
                forgets=self._stage.plan.forgets,
            )
        else:
            found += [
                f"{copy.place} is {copy.status}"
                for copy in self._stage.copies()
                if copy.status is None or copy.status.state != "FailedOver"
            ]
        if self._stage.plan.comes_home:
            found += out_of_step(self._stage.target, self._stage.source, BACK, now_s, may_stop=False)
            home = {copy.place for copy in self._stage.homes()}
            found += [f"{place} has not come home" for place in self._stage.places if place not in home]
        return found

    def _count(self) -> None:
        """What this run was about, for whoever counts."""
        found = [
            *("partition appended to" for _ in self._stage.fed()),
            *("partition copied" for copy in self._stage.copies() if not copy.topic.failed_over),
            *("partition failed over" for copy in self._stage.copies() if copy.topic.failed_over),
            *("partition stopped" for copy in self._stage.copies() if copy.known.stopped),
            *("partition come home" for _ in self._stage.homes()),
            *(["run with a file of what was cut off"] if saved_in(self._stage.source) else []),
        ]
        for what in found:
            self._stage.done[what] = self._stage.done.get(what, 0) + 1

    async def checked(self) -> list[str]:
        broken = await self._until_nothing(self._unfinished, "no rest")
        self._count()
        now_s, plan = self._stage.loop.time(), self._stage.plan
        for cluster in (self._stage.source, self._stage.target):
            broken += [*replicas_are_equal(cluster, trimmed=self._stage.plan.trims), *metadata_are_equal(cluster)]
        broken += copies_are_logs_of_their_source(self._stage.target, THERE, self._stage.ancestry, now_s)
        still = not (plan.forgets or plan.comes_home)
        broken += logs_are_one(self._stage.source, self._stage.target, THERE, now_s, from_source=still)
        broken += logs_are_one(self._stage.target, self._stage.source, BACK, now_s)
        broken += own_records_begin_behind(self._stage.at_target.history, self._stage.target, THERE, now_s)
        contents, topics, starts = contents_of(self._stage.target)
        broken += broken_promises(self._of_both(starts), contents, topics)
        contents, topics, starts = contents_of(self._stage.source)
        broken += appended_are_there_once_and_in_order(contents, starts, self._stage.fed(), keeps=not plan.forgets)
        if plan.comes_home:
            kept = replace(
                self._stage.at_source.history,
                acks=[ack for ack in self._stage.at_source.history.acks if ack.place[0] == TOPIC],
            )
            if not plan.forgets:
                kept = without_what_went(kept, starts)
                broken += acknowledged_are_there_or_saved(kept, contents, saved_in(self._stage.source))
        elif not plan.forgets:
            broken += broken_promises(without_what_went(self._stage.at_source.history, starts), contents, topics)
        return broken

    def _of_both(self, starts: Mapping[Place, int]) -> History:
        """The target's history; its groups had seen at the source what they had when they moved."""
        history = without_what_went(self._stage.at_target.history, starts)
        for group in history.seen:
            for place, records in self._stage.at_source.history.seen.get(group, {}).items():
                own = history.seen[group].get(place, {})
                ends = [copy.known.end for copy in self._stage.copies() if copy.place == place]
                history.seen[group][place] = {at: value for at, value in records.items() if at < ends[0]} | own
        if self._stage.plan.forgets:
            self._forget_what_was_deleted(history)
        return history

    def _forget_what_was_deleted(self, history: History) -> None:
        """Where a source that forgot had let records go before, it has others since. Of who commits it still counts that they were seen."""
        deleted, commits = self._stage.at_source.history.deleted, {group for group, _ in history.committed}
        for group in history.seen.keys() - commits:
            for place, records in history.seen[group].items():
                kept = {at: value for at, value in records.items() if at >= deleted.get(place, 0)}
                history.seen[group][place] = kept
