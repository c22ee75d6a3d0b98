"""The controller's part in a broker's registration, session, fencing and controlled shutdown, and
what each of them does to partitions.
"""

import asyncio

from ottla_broker.metadata.cluster_control import BrokerHeartbeat
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.wire.errors import ErrorCode
from tests.unit.async_tests import async_test, wait_until
from tests.unit.kafka_errors import error_of
from tests.unit.metadata.small_controller import SmallController
from tests.unit.topic_creation import create_topic


@async_test
async def test_a_broker_is_unfenced_when_its_metadata_include_its_registration() -> None:
    small = SmallController()
    epoch = await small.register(1)
    assert small.fenced() == [1]
    reply = await small.heartbeat(1, metadata_offset=epoch - 1)
    assert (reply.is_caught_up, reply.is_fenced) == (False, True)
    reply = await small.heartbeat(1, metadata_offset=epoch)
    assert (reply.is_caught_up, reply.is_fenced) == (True, False)
    assert (await small.heartbeat(1, want_fence=True)).is_fenced


@async_test
async def test_rule_6_a_fenced_broker_is_unfenced_only_after_it_has_read_its_fencing() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(replicas=(1, 2))
    read_offset = small.image.end_offset - 1
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    reply = await small.heartbeat(1, metadata_offset=read_offset)  # its image still names it leader
    assert (reply.is_caught_up, reply.is_fenced) == (False, True)
    fencing_offset = small.image.end_offset - 1
    await small.add_topic("another", replicas=(2,))
    assert not (await small.heartbeat(1, metadata_offset=fencing_offset)).is_fenced  # later records need not be read

    successor = SmallController(image=small.image)  # a new controller, which has fenced no broker itself
    await successor.brokers.fence_broker(1, successor.image.brokers[1].epoch, "a test")
    restarted = SmallController(image=small.image)
    assert (await restarted.heartbeat(1, metadata_offset=fencing_offset)).is_fenced
    assert not (await restarted.heartbeat(1)).is_fenced


@async_test
async def test_a_repeated_registration_changes_nothing() -> None:
    small = await SmallController().add_brokers(1)
    epoch = small.image.brokers[1].epoch
    assert await small.register(1) == epoch
    assert small.fenced() == []


@async_test
async def test_a_second_process_with_a_live_broker_id_is_refused_unless_it_holds_the_directory() -> None:
    small = await SmallController().add_brokers(1)
    assert await error_of(small.register(1, incarnation=7, directories=(5,))) is ErrorCode.duplicate_broker_registration
    old = small.image.brokers[1].epoch
    assert (
        await small.register(1, incarnation=7) > old
    )  # it holds the lock of the directory, so the first process is gone
    assert small.fenced() == [1]
    assert await error_of(small.heartbeat(1, broker_epoch=old)) is ErrorCode.stale_broker_epoch
    assert await error_of(small.register(2, directories=(6, 6))) is ErrorCode.invalid_registration


@async_test
async def test_rule_4_a_new_controller_places_no_replicas_before_each_broker_sent_a_heartbeat_or_is_fenced() -> None:
    predecessor = await SmallController().add_brokers(1, 2)
    await predecessor.add_topic("old", replicas=(1, 2))
    # Broker 1's disk is wiped, and both brokers are restarted.
    successor = SmallController(predecessor.image, broker_session_timeout_ms="2000")
    control_loop = asyncio.create_task(successor.controller.run())
    await successor.register(2, incarnation=22)
    creation = asyncio.create_task(create_topic(successor.controller, NewTopic("new", 1, 1)))
    growth = asyncio.create_task(successor.controller.create_partitions("old", 2))
    await successor.heartbeat(2)
    assert not creation.done() and not growth.done()
    assert (
        await error_of(successor.register(1, incarnation=11, directories=(5,)))
        is ErrorCode.duplicate_broker_registration
    )
    while not creation.done() or not growth.done():
        await successor.heartbeat(2)
        await asyncio.sleep(0.02)
    assert successor.fenced() == [1]
    assert successor.state(topic="new").leader == successor.state(1, "old").leader == 2
    await successor.register(1, incarnation=11, directories=(5,))
    assert successor.state(topic="new").leader == successor.state(1, "old").leader == 2
    control_loop.cancel()


@async_test
async def test_a_new_controller_places_replicas_once_each_broker_sent_a_heartbeat() -> None:
    predecessor = await SmallController().add_brokers(1, 2)
    successor = SmallController(predecessor.image)
    creation = asyncio.create_task(create_topic(successor.controller, NewTopic("new", 2, 1)))
    await successor.heartbeat(1)
    await asyncio.sleep(0)
    assert not creation.done()
    await successor.heartbeat(2)
    await creation
    assert {it.leader for it in successor.image.topics["new"].partitions.values()} == {1, 2}


@async_test
async def test_fencing_moves_leaders_and_shrinks_isrs_in_one_commit() -> None:
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2, 3)
    await small.add_topic(partitions=50)
    small.log.commits.clear()
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    assert small.log.commits == [51]
    assert {(s.leader, s.isr, s.eligible) for s in small.image.topics["t"].partitions.values()} == {(2, (2, 3), ())}
    await small.brokers.fence_broker(2, small.image.brokers[2].epoch, "a test")
    assert (small.state().leader, small.state().isr, small.state().eligible) == (3, (3,), (2,))
    await small.brokers.fence_broker(3, small.image.brokers[3].epoch, "a test")
    assert (small.state().leader, small.state().isr, small.state().eligible) == (-1, (3,), (2,))
    await small.heartbeat(2)  # an eligible leader replica may lead like one in sync
    assert (small.state().leader, small.state().isr, small.state().eligible) == (2, (2,), (3,))


@async_test
async def test_rule_5_an_unclean_leader_is_elected_only_where_the_topic_allows_it() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic("safe", replicas=(1, 2))
    await small.add_topic("loose", replicas=(1, 2), unclean_leader_election_enable="true")
    for broker in (2, 1):
        await small.brokers.fence_broker(broker, small.image.brokers[broker].epoch, "a test")
    await small.heartbeat(2)
    assert (small.state(topic="safe").leader, small.state(topic="safe").isr) == (-1, (1,))
    assert (small.state(topic="loose").leader, small.state(topic="loose").isr) == (2, (2,))
    await small.controller.alter_configs(2, "safe", {"unclean.leader.election.enable": "true"})
    assert small.state(topic="safe").leader == 2  # the topic allows it now


@async_test
async def test_rule_5_an_incarnation_that_may_have_lost_records_is_removed_from_isr_and_elr() -> None:
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2, 3)
    await small.add_topic()
    for broker in (1, 2):
        await small.brokers.fence_broker(broker, small.image.brokers[broker].epoch, "a test")
    assert (small.state().isr, small.state().eligible) == ((3,), (2,))
    await small.register(2, incarnation=2)  # without the epoch of a clean shutdown
    assert (small.state().isr, small.state().eligible) == ((3,), ())
    await small.brokers.fence_broker(3, small.image.brokers[3].epoch, "a test")
    await small.register(3, incarnation=3)
    assert small.state().isr == (3,)  # there is no other replica to elect
    await small.heartbeat(3)
    assert small.state().leader == 3


@async_test
async def test_an_incarnation_that_lost_no_records_stays_eligible() -> None:
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2, 3)
    await small.add_topic()
    epochs = {broker: small.image.brokers[broker].epoch for broker in (1, 2, 3)}
    for broker in (1, 2, 3):
        await small.brokers.fence_broker(broker, epochs[broker], "a test")
    assert (small.state().isr, small.state().eligible) == ((3,), (2,))
    await small.register(2, incarnation=2, previous=epochs[2])
    await small.heartbeat(2)
    assert small.state().leader == 2


@async_test
async def test_rule_4_a_broker_with_a_wiped_disk_is_removed_from_the_isr() -> None:
    small = await SmallController().add_brokers(1)
    await small.add_topic(replicas=(1,))
    await small.brokers.fence_broker(1, small.image.brokers[1].epoch, "a test")
    await small.register(1, incarnation=2, directories=(77,), previous=small.image.brokers[1].epoch)
    await small.heartbeat(1)
    assert (small.state().leader, small.state().isr) == (-1, ())
    assert small.state().directories[0].int == 77
    [outcome] = (await small.replicas.elect_unclean_leaders([("t", 0)])).values()
    assert outcome is None
    assert (small.state().leader, small.state().isr) == (1, (1,))


@async_test
async def test_a_topic_created_with_one_unfenced_broker_survives_the_loss_of_its_disk() -> None:
    """All its replicas are empty, and no record is committed before `min.insync.replicas` are in
    sync."""
    small = await SmallController(min_insync_replicas="2").add_brokers(1, 2, 3)
    for broker in (1, 2):
        await small.heartbeat(broker, want_fence=True)
    await small.add_topic(partitions=1)
    await small.controller.create_partitions("t", 2, [(3, 1, 2)])
    for state in small.image.topics["t"].partitions.values():
        assert (state.isr, state.leader, state.eligible) == ((3,), 3, tuple(b for b in state.replicas if b != 3))
    await small.brokers.fence_broker(3, small.image.brokers[3].epoch, "a test")
    await small.register(3, incarnation=7, directories=(7,))
    for broker in (1, 2):
        await small.heartbeat(broker)
    for state in small.image.topics["t"].partitions.values():
        assert state.leader in (1, 2)
    await small.add_topic("u", min_insync_replicas="1", replicas=(1, 2, 3))
    assert small.state(topic="u").eligible == ()


@async_test
async def test_only_replicas_on_a_lost_directory_are_lost() -> None:
    small = SmallController()
    await small.register(1, directories=(10, 11))
    await small.heartbeat(1)
    await small.add_topic(partitions=2, replicas=(1,))
    assert sorted(state.directories[0].int for state in small.image.topics["t"].partitions.values()) == [10, 11]
    epoch = small.image.brokers[1].epoch
    await small.register(1, incarnation=2, directories=(11, 12), previous=epoch)
    await small.heartbeat(1)
    states = small.image.topics["t"].partitions.values()
    assert sorted((state.directories[0].int, state.leader) for state in states) == [(11, -1), (11, 1)]


@async_test
async def test_partitions_of_a_failed_directory_get_other_leaders() -> None:
    small = SmallController()
    await small.register(1, directories=(10, 11))
    await small.heartbeat(1)
    await small.add_brokers(2)
    await small.add_topic(partitions=2, replicas=(1, 2))
    failed_directory = small.state(0).directories[0]
    await small.heartbeat(1, offline_directories=(failed_directory,))
    assert [small.state(p).leader for p in (0, 1)] == [2, 1]
    assert small.fenced() == []
    epoch = small.image.brokers[1].epoch
    await small.register(
        1, incarnation=2, directories=(10, 11), previous=epoch
    )  # the same directory, which had failed before
    await small.heartbeat(1)
    assert small.state(0).isr == (2,)


@async_test
async def test_a_directory_that_fails_during_a_controlled_shutdown_is_recorded() -> None:
    small = SmallController()
    await small.register(1, directories=(10, 11))
    await small.heartbeat(1)
    await small.add_brokers(2)
    await small.add_topic(replicas=(1,))
    await small.add_topic("shared", replicas=(1, 2))
    await small.heartbeat(1, want_shut_down=True)
    assert small.state().leader == 1
    await small.heartbeat(1, want_shut_down=True, offline_directories=small.state().directories)
    assert (small.state().leader, small.fenced()) == (-1, [])


@async_test
async def test_a_broker_without_heartbeats_is_fenced_after_its_session() -> None:
    small = await SmallController(broker_session_timeout_ms="200", broker_heartbeat_interval_ms="50").add_brokers(1, 2)
    await small.add_topic(replicas=(1, 2))
    control_loop = asyncio.create_task(small.controller.run())
    while small.fenced() != [1]:
        await small.heartbeat(2)
        await asyncio.sleep(0.01)
    control_loop.cancel()
    assert small.state().leader == 2


@async_test
async def test_a_new_controller_fences_its_predecessor_and_gives_the_others_a_session() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    small.image.previous_controller_id = 2
    control_loop = asyncio.create_task(small.controller.run())
    await wait_until(small.fenced)
    control_loop.cancel()
    assert small.fenced() == [2]
    assert small.brokers.heartbeats.is_alive(3, small.image.brokers[3].epoch, asyncio.get_running_loop().time())


@async_test
async def test_controlled_shutdown_ends_when_the_new_leaders_have_read_the_change() -> None:
    small = await SmallController().add_brokers(1, 2, 3)
    await small.add_topic()
    reply = await small.heartbeat(1, want_shut_down=True)
    assert (reply.is_fenced, reply.should_shut_down) == (False, False)
    assert (small.state().leader, small.state().isr) == (2, (2, 3))
    assert small.fenced() == []
    await small.heartbeat(2)
    assert not (await small.heartbeat(1, want_shut_down=True)).should_shut_down  # broker 3 may not have read the change
    await small.heartbeat(3)
    assert (await small.heartbeat(1, want_shut_down=True)).should_shut_down
    assert small.fenced() == [1]
    assert (await small.heartbeat(1)).is_fenced  # a heartbeat does not end a shutdown; a registration does


@async_test
async def test_a_partition_without_another_candidate_keeps_its_leader_until_shutdown() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(replicas=(1,))
    await small.add_topic("shared", replicas=(1, 2))
    reply = await small.heartbeat(1, want_shut_down=True)
    assert small.state().leader == 1
    assert small.state(topic="shared").leader == 2
    await small.heartbeat(2)
    reply = await small.heartbeat(1, want_shut_down=True)
    assert reply.should_shut_down
    assert (small.state().leader, small.state().isr) == (-1, (1,))


@async_test
async def test_a_controller_that_hears_no_majority_answers_no_heartbeats() -> None:
    small = await SmallController().add_brokers(1)
    small.log.majority_heard = False
    assert await error_of(small.heartbeat(1)) is ErrorCode.not_controller


@async_test
async def test_an_unregistered_broker_leads_nothing_and_must_register_again() -> None:
    small = await SmallController().add_brokers(1, 2)
    await small.add_topic(replicas=(1, 2))
    epoch = small.image.brokers[1].epoch
    await small.brokers.unregister_broker(1)
    assert (small.state().leader, small.state().isr, small.state().replicas) == (2, (2,), (1, 2))
    assert (
        await error_of(small.brokers.process_heartbeat(BrokerHeartbeat(1, epoch, 0)))
        is ErrorCode.broker_id_not_registered
    )
    assert await error_of(small.brokers.unregister_broker(1)) is ErrorCode.broker_id_not_registered
    await small.register(1)
    await small.heartbeat(1)
    assert small.state().isr == (2,)
