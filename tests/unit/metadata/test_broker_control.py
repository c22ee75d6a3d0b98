"""Brokers as the controller has them: registration, sessions, fencing, an orderly stop, and what
each does to partitions.
"""

import asyncio

import pytest

from ottla_broker.metadata.cluster_control import BrokerHeartbeat
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.metadata.small_controller import SmallController, on_a_loop, until
from tests.unit.topic_creation import create_topic


async def code_of(work: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await work  # type: ignore[misc]
    return caught.value.code


@on_a_loop
async def test_a_broker_is_unfenced_when_it_knows_of_its_own_registration() -> None:
    small = SmallController()
    epoch = await small.register(1)
    assert small.fenced() == [1]
    standing = await small.beat(1, metadata_offset=epoch - 1)
    assert (standing.is_caught_up, standing.is_fenced) == (False, True)
    standing = await small.beat(1, metadata_offset=epoch)
    assert (standing.is_caught_up, standing.is_fenced) == (True, False)
    assert (await small.beat(1, want_fence=True)).is_fenced


@on_a_loop
async def test_rule_6_who_was_fenced_must_know_it_before_it_is_not() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(replicas=(1, 2))
    heard = small.image.end_offset - 1
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    standing = await small.beat(1, metadata_offset=heard)  # it believes that it leads
    assert (standing.is_caught_up, standing.is_fenced) == (False, True)
    fenced = small.image.end_offset - 1
    await small.topic("another", replicas=(2,))
    assert not (await small.beat(1, metadata_offset=fenced)).is_fenced  # what came later need not be waited for

    later = SmallController(image=small.image)  # another controller, which has fenced nobody itself
    await later.brokers.fence_broker(1, later.image.brokers[1].epoch, "a test")
    again = SmallController(image=small.image)
    assert (await again.beat(1, metadata_offset=fenced)).is_fenced
    assert not (await again.beat(1)).is_fenced


@on_a_loop
async def test_a_registration_that_comes_twice_is_one() -> None:
    small = await SmallController().come(1)
    epoch = small.image.brokers[1].epoch
    assert await small.register(1) == epoch
    assert small.fenced() == []


@on_a_loop
async def test_another_process_under_a_living_id_is_refused_unless_it_holds_the_directory() -> None:
    small = await SmallController().come(1)
    assert await code_of(small.register(1, incarnation=7, directories=(5,))) is ErrorCode.duplicate_broker_registration
    old = small.image.brokers[1].epoch
    assert await small.register(1, incarnation=7) > old  # the lock on the directory was its predecessor's
    assert small.fenced() == [1]
    assert await code_of(small.beat(1, broker_epoch=old)) is ErrorCode.stale_broker_epoch
    assert await code_of(small.register(2, directories=(6, 6))) is ErrorCode.invalid_registration


@on_a_loop
async def test_rule_4_a_new_controller_places_nothing_before_everybody_is_heard_or_fenced() -> None:
    before = await SmallController().come(1, 2)
    await before.topic("old", replicas=(1, 2))
    # The disk of broker 1 was wiped, and both were started anew.
    later = SmallController(before.image, broker_session_timeout_ms="500")
    fencing = asyncio.create_task(later.controller.run())
    await later.register(2, incarnation=22)
    making = asyncio.create_task(create_topic(later.controller, NewTopic("new", 1, 1)))
    growing = asyncio.create_task(later.controller.create_partitions("old", 2))
    await later.beat(2)
    assert not making.done() and not growing.done()
    assert await code_of(later.register(1, incarnation=11, directories=(5,))) is ErrorCode.duplicate_broker_registration
    while not making.done() or not growing.done():
        await later.beat(2)
        await asyncio.sleep(0.02)
    assert later.fenced() == [1]
    assert later.state(topic="new").leader == later.state(1, "old").leader == 2
    await later.register(1, incarnation=11, directories=(5,))
    assert later.state(topic="new").leader == later.state(1, "old").leader == 2
    fencing.cancel()


@on_a_loop
async def test_a_new_controller_that_has_heard_everybody_waits_no_more() -> None:
    before = await SmallController().come(1, 2)
    later = SmallController(before.image)
    making = asyncio.create_task(create_topic(later.controller, NewTopic("new", 2, 1)))
    await later.beat(1)
    await asyncio.sleep(0)
    assert not making.done()
    await later.beat(2)
    await making
    assert {it.leader for it in later.image.topics["new"].partitions.values()} == {1, 2}


@on_a_loop
async def test_fencing_moves_leaders_and_shrinks_isrs_in_one_commit() -> None:
    small = await SmallController(min_insync_replicas="2").come(1, 2, 3)
    await small.topic(partitions=50)
    small.log.commits.clear()
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    assert small.log.commits == [51]
    assert {(s.leader, s.isr, s.eligible) for s in small.image.topics["t"].partitions.values()} == {(2, (2, 3), ())}
    await small.brokers.fence_broker(2, small.image.brokers[2].epoch, "a test")
    assert (small.state().leader, small.state().isr, small.state().eligible) == (3, (3,), (2,))
    await small.brokers.fence_broker(3, small.image.brokers[3].epoch, "a test")
    assert (small.state().leader, small.state().isr, small.state().eligible) == (-1, (3,), (2,))
    await small.beat(2)  # one that is trusted is as good as one in sync
    assert (small.state().leader, small.state().isr, small.state().eligible) == (2, (2,), (3,))


@on_a_loop
async def test_rule_5_nobody_leads_uncleanly_unless_the_topic_says_so() -> None:
    small = await SmallController().come(1, 2)
    await small.topic("safe", replicas=(1, 2))
    await small.topic("loose", replicas=(1, 2), unclean_leader_election_enable="true")
    for broker in (2, 1):
        await small.brokers.fence_broker(broker, small.image.brokers[broker].epoch, "a test")
    await small.beat(2)
    assert (small.state(topic="safe").leader, small.state(topic="safe").isr) == (-1, (1,))
    assert (small.state(topic="loose").leader, small.state(topic="loose").isr) == (2, (2,))
    await small.controller.alter_configs(2, "safe", {"unclean.leader.election.enable": "true"})
    assert small.state(topic="safe").leader == 2  # somebody has just said so


@on_a_loop
async def test_rule_5_a_life_that_may_have_lost_something_gives_way_to_others() -> None:
    small = await SmallController(min_insync_replicas="2").come(1, 2, 3)
    await small.topic()
    for broker in (1, 2):
        await small.brokers.fence_broker(broker, small.image.brokers[broker].epoch, "a test")
    assert (small.state().isr, small.state().eligible) == ((3,), (2,))
    await small.register(2, incarnation=2)  # it does not say that its last life ended well
    assert (small.state().isr, small.state().eligible) == ((3,), ())
    await small.brokers.fence_broker(3, small.image.brokers[3].epoch, "a test")
    await small.register(3, incarnation=3)
    assert small.state().isr == (3,)  # nobody else is left
    await small.beat(3)
    assert small.state().leader == 3


@on_a_loop
async def test_a_life_that_lost_nothing_is_trusted_as_before() -> None:
    small = await SmallController(min_insync_replicas="2").come(1, 2, 3)
    await small.topic()
    epochs = {broker: small.image.brokers[broker].epoch for broker in (1, 2, 3)}
    for broker in (1, 2, 3):
        await small.brokers.fence_broker(broker, epochs[broker], "a test")
    assert (small.state().isr, small.state().eligible) == ((3,), (2,))
    await small.register(2, incarnation=2, previous=epochs[2])
    await small.beat(2)
    assert small.state().leader == 2


@on_a_loop
async def test_rule_4_a_wiped_disk_never_passes_as_its_old_self() -> None:
    small = await SmallController().come(1)
    await small.topic(replicas=(1,))
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    await small.register(1, incarnation=2, directories=(77,), previous=small.image.brokers[1].epoch)
    await small.beat(1)
    assert (small.state().leader, small.state().isr) == (-1, ())
    assert small.state().directories[0].int == 77
    [outcome] = (await small.replicas.elect_unclean_leaders([("t", 0)])).values()
    assert outcome is None
    assert (small.state().leader, small.state().isr) == (1, (1,))


@on_a_loop
async def test_a_topic_that_was_made_when_one_broker_was_there_is_not_lost_with_its_disk() -> None:
    """All its replicas are equally empty, and nothing is committed before as many are in sync as
    must be.
    """
    small = await SmallController(min_insync_replicas="2").come(1, 2, 3)
    for broker in (1, 2):
        await small.beat(broker, want_fence=True)
    await small.topic(partitions=1)
    await small.controller.create_partitions("t", 2, [(3, 1, 2)])
    for state in small.image.topics["t"].partitions.values():
        assert (state.isr, state.leader, state.eligible) == ((3,), 3, tuple(b for b in state.replicas if b != 3))
    await small.brokers.fence_broker(3, small.image.brokers[3].epoch, "a test")
    await small.register(3, incarnation=7, directories=(7,))
    for broker in (1, 2):
        await small.beat(broker)
    for state in small.image.topics["t"].partitions.values():
        assert state.leader in (1, 2)
    await small.topic("u", min_insync_replicas="1", replicas=(1, 2, 3))
    assert small.state(topic="u").eligible == ()


@on_a_loop
async def test_of_two_directories_only_what_lay_on_the_lost_one_is_lost() -> None:
    small = SmallController()
    await small.register(1, directories=(10, 11))
    await small.beat(1)
    await small.topic(partitions=2, replicas=(1,))
    assert sorted(state.directories[0].int for state in small.image.topics["t"].partitions.values()) == [10, 11]
    epoch = small.image.brokers[1].epoch
    await small.register(1, incarnation=2, directories=(11, 12), previous=epoch)
    await small.beat(1)
    leaders = {state.directories[0].int: state.leader for state in small.image.topics["t"].partitions.values()}
    assert leaders == {11: 1, 12: -1} or leaders == {11: 1}


@on_a_loop
async def test_a_directory_that_fails_gives_its_partitions_away() -> None:
    small = SmallController()
    await small.register(1, directories=(10, 11))
    await small.beat(1)
    await small.come(2)
    await small.topic(partitions=2, replicas=(1, 2))
    broken = small.state(0).directories[0]
    await small.beat(1, offline_directories=(broken,))
    assert [small.state(p).leader for p in (0, 1)] == [2, 1]
    assert small.fenced() == []
    epoch = small.image.brokers[1].epoch
    await small.register(1, incarnation=2, directories=(10, 11), previous=epoch)  # the same disk, but it had failed
    await small.beat(1)
    assert small.state(0).isr == (2,)


@on_a_loop
async def test_the_silent_are_fenced_after_a_session() -> None:
    small = await SmallController(broker_session_timeout_ms="200", broker_heartbeat_interval_ms="50").come(1, 2)
    await small.topic(replicas=(1, 2))
    running = asyncio.create_task(small.controller.run())
    while small.fenced() != [1]:
        await small.beat(2)
        await asyncio.sleep(0.01)
    running.cancel()
    assert small.state().leader == 2


@on_a_loop
async def test_a_new_controller_fences_its_predecessor_and_gives_the_others_a_session() -> None:
    small = await SmallController().come(1, 2, 3)
    small.image.previous_controller_id = 2
    running = asyncio.create_task(small.controller.run())
    await until(small.fenced)
    running.cancel()
    assert small.fenced() == [2]
    assert small.brokers.heartbeats.is_alive(3, small.image.brokers[3].epoch, asyncio.get_running_loop().time())


@on_a_loop
async def test_a_broker_may_stop_when_others_lead_and_know_it() -> None:
    small = await SmallController().come(1, 2, 3)
    await small.topic()
    standing = await small.beat(1, want_shut_down=True)
    assert (standing.is_fenced, standing.should_shut_down) == (False, False)
    assert (small.state().leader, small.state().isr) == (2, (2, 3))
    assert small.fenced() == []
    await small.beat(2)
    assert not (await small.beat(1, want_shut_down=True)).should_shut_down  # broker 3 may not know yet
    await small.beat(3)
    assert (await small.beat(1, want_shut_down=True)).should_shut_down
    assert small.fenced() == [1]
    assert (await small.beat(1)).is_fenced  # it does not come back but by registering


@on_a_loop
async def test_what_nobody_else_can_lead_is_led_until_the_end() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(replicas=(1,))
    await small.topic("shared", replicas=(1, 2))
    standing = await small.beat(1, want_shut_down=True)
    assert small.state().leader == 1
    assert small.state(topic="shared").leader == 2
    await small.beat(2)
    standing = await small.beat(1, want_shut_down=True)
    assert standing.should_shut_down
    assert (small.state().leader, small.state().isr) == (-1, (1,))


@on_a_loop
async def test_a_controller_that_hears_no_majority_answers_no_heartbeats() -> None:
    small = await SmallController().come(1)
    small.log.majority = False
    assert await code_of(small.beat(1)) is ErrorCode.not_controller


@on_a_loop
async def test_a_broker_that_is_taken_out_leads_nothing_and_must_register() -> None:
    small = await SmallController().come(1, 2)
    await small.topic(replicas=(1, 2))
    epoch = small.image.brokers[1].epoch
    await small.brokers.unregister_broker(1)
    assert (small.state().leader, small.state().isr, small.state().replicas) == (2, (2,), (1, 2))
    assert (
        await code_of(small.brokers.process_heartbeat(BrokerHeartbeat(1, epoch, 0)))
        is ErrorCode.broker_id_not_registered
    )
    assert await code_of(small.brokers.unregister_broker(1)) is ErrorCode.broker_id_not_registered
    await small.register(1)
    await small.beat(1)
    assert small.state().isr == (2,)
