"""What an identical copy knows of the sources that are appended to what it is a copy of, and who goes on with them."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla_broker.config import FAILED_OVER, REPLICATE
from ottla_broker.log.producer_state import LASTING
from ottla_broker.metadata.appended_sources import Carried, kept, live, told
from ottla_broker.metadata.image import MIRROR_RESOURCE
from ottla_broker.metadata.mirror_plans import NewMirror, Report
from ottla_broker.metadata.records import AppendedSource
from ottla_broker.mirroring.discovery import Create, Refused, Trace, steps
from ottla_broker.mirroring.joining import Join, joins
from ottla_broker.mirroring.links import links
from ottla_broker.mirroring.source import SourceTopic, SourceView
from ottla_broker.mirroring.source_copies import SourceCopy
from ottla_broker.wire.errors import KafkaError
from tests.unit.metadata.small_controller import on_a_loop
from tests.unit.mirroring.test_discovery import HERE, World, view

NEWARK = Carried(UUID(int=1), "newark", "t", LASTING + 11, 2)
NEWYORK = Carried(UUID(int=2), "newyork", "t", LASTING + 22, 2)
OF_NEWARK = SourceView("n", {1: ("h", 1)}, {"t": SourceTopic("t", NEWARK.source_id, {0: 1, 1: 1})}, frozenset())


def region(*sources: Carried) -> SourceView:
    found = view(t=2)
    return replace(found, topics={"t": replace(found.topics["t"], sources=sources)})


class Standby(World):
    """An identical copy of the region's `t`, into which Newark's is appended there."""

    async def begin(self, **settings: str) -> "Standby":
        await super().begin(**settings)
        assert [type(step) for step in await self.take(region(NEWARK))] == [Create]
        await self.controller.alter_configs(
            MIRROR_RESOURCE, "newark", {"bootstrap.servers": "n:1", "topics": "t", "offsets": "Appended"}
        )
        return self

    @property
    def id(self) -> UUID:
        return self.image.topics["t"].id

    def sources(self) -> dict[UUID, AppendedSource]:
        return self.image.appended[self.id]

    async def fail_over(self) -> None:
        await self.set(role=FAILED_OVER)
        for state in self.image.topics["t"].partitions.values():
            await self.controller.mirrors.report(
                Report(state.leader, self.id, state.partition, state.leader_epoch, end=9)
            )

    async def join(self) -> list[object]:
        found = list(joins(self.image, links(self.image)["newark"], OF_NEWARK, None, 1, HERE))
        for step in found:
            if isinstance(step, Join):
                await self.controller.mirrors.join(step.source)
        return list(found)


@on_a_loop
async def test_they_are_known_with_the_copy_and_when_others_come() -> None:
    world = await Standby().begin()
    assert [(one.producer_id, one.carried) for one in world.sources().values()] == [(LASTING + 11, True)]
    assert live(world.image, world.id) == {} and kept(world.image, world.id) == []
    assert [type(step) for step in await world.take(region(NEWARK, NEWYORK))] == [Trace]
    assert world.steps(region(NEWARK, NEWYORK)) == [], "and then nothing is left to do"
    assert told(world.image, world.id) == [NEWARK, NEWYORK], "for copies of the copy"
    assert world.steps(region(NEWARK)) == [], "what is not told any more is in the log still"


@on_a_loop
async def test_a_mirror_here_goes_on_by_the_same_producer_id_once_the_copy_has_failed_over() -> None:
    world = await Standby().begin()
    (refused,) = await world.join()
    assert isinstance(refused, Refused) and "identical copy" in refused.why
    await world.fail_over()
    assert [one.producer_id for one in kept(world.image, world.id)] == [LASTING + 11], (
        "how far it came is not forgotten"
    )
    assert [type(step) for step in await world.join()] == [Join]
    (now,) = live(world.image, world.id).values()
    assert (now.producer_id, now.mirror, now.ended, now.carried) == (LASTING + 11, "newark", False, False)
    assert await world.join() == []


@on_a_loop
async def test_a_topic_with_sources_of_its_own_does_not_become_a_copy_before_they_end() -> None:
    world = await Standby().begin(on_divergence="Truncate")
    await world.fail_over()
    await world.join()
    await world.set(role=REPLICATE)
    why = "records are appended to it by mirror 'newark': that has to end first, by its role FailedOver"
    (step,) = world.steps(region(NEWARK))
    assert isinstance(step, Refused) and step.why == why
    other_way = SourceView("there", {}, {"t": SourceTopic("t", UUID(int=99), {0: 1, 1: 1})}, frozenset())
    reverse = {"t": SourceCopy("back", world.id, failed_over=True)}
    (step,) = steps(world.image, links(world.image)["west"], other_way, None, 1, HERE, reverse)
    assert isinstance(step, Refused) and step.why == why
    wish = NewMirror("west", "t", "t", UUID(int=99), 2, 1)
    for command in (world.controller.mirrors.take_back, world.controller.mirrors.adopt):
        with pytest.raises(KafkaError, match="that has to end first"):
            await command(wish, world.id)
    # It ends, the topic is a copy for a while, in which another cluster copies on, and fails over again.
    await world.controller.alter_configs(MIRROR_RESOURCE, "newark", {"role": FAILED_OVER})
    await world.controller.mirrors.take_back(
        replace(wish, source_id=world.image.mirrored[world.id].source_id, sources=(NEWARK,)), world.id
    )
    assert [one.carried for one in world.sources().values()] == [True]
    await world.set(role=FAILED_OVER)
    await world.controller.alter_configs(MIRROR_RESOURCE, "newark", {"role": REPLICATE})
    assert [type(found) for found in await world.join()] == [Join]
    assert [one.producer_id for one in live(world.image, world.id).values()] == [LASTING + 11]
