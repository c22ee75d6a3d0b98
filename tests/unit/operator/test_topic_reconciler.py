"""Reconciles of Topics: which topics are deleted with their resources, which stay with their
records, and what one Topic's failure means for the others.
"""

import pytest

from ottla_operator.kube.api import ApiError
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.reconcile.watch_cache import WatchCache, reduce_resource
from tests.unit.async_tests import async_test
from tests.unit.operator.topic_world import KEY, TopicWorld, resource


@async_test
async def test_a_change_to_retain_just_before_the_deletion_keeps_the_topic() -> None:
    world = TopicWorld()
    world.create("kept", deletionPolicy="Delete")
    world.create("gone", deletionPolicy="Delete")
    await world.reconcile()
    world.delete("kept", deletionPolicy="Retain")
    world.delete("gone")
    await world.reconcile()
    assert world.brokers.topics.keys() == {"kept"} and not await world.recorded()
    assert world.cache.deleted_topics == {KEY: {}}, "the cache drops deletions that are recorded"


@async_test
async def test_a_change_to_retain_is_recorded_while_no_broker_answers() -> None:
    world = TopicWorld()
    world.create("kept", deletionPolicy="Delete")
    world.create("gone", deletionPolicy="Delete")
    await world.reconcile()
    world.brokers.is_unreachable = True
    world.edit("kept", deletionPolicy="Retain")
    world.delete("gone")
    await world.reconcile()
    assert await world.recorded() == {"gone": True}
    after = world.start_another_operator()
    after.brokers.is_unreachable = False
    await after.reconcile()
    assert after.brokers.topics.keys() == {"kept"}, "the other operator reads the deletion records of the first"


@async_test
async def test_a_topic_that_is_deleted_and_created_again_between_reconciles_is_empty() -> None:
    world = TopicWorld()
    world.create("again", deletionPolicy="Delete")
    world.create("kept", deletionPolicy="Delete")
    await world.reconcile()
    before = dict(world.brokers.topics)
    world.delete("again")
    world.create("again", deletionPolicy="Delete")
    world.delete("kept", deletionPolicy="Retain")
    world.create("kept", deletionPolicy="Delete")
    await world.reconcile()
    assert world.brokers.topics["again"] != before["again"] and world.brokers.topics["kept"] == before["kept"]
    assert world.status("again")["topicId"] == str(world.brokers.topics["again"])
    assert await world.deletion_records() == {
        world.uid(name): DeletionRecord(name, name, str(world.brokers.topics[name])) for name in ("again", "kept")
    }


@async_test
async def test_a_topic_created_again_while_no_operator_watches_is_emptied_only_if_both_resources_say_delete() -> None:
    world = TopicWorld()
    for name in ("delete", "retain", "other"):
        world.create(name, deletionPolicy="Delete")
    await world.reconcile()
    before = dict(world.brokers.topics)
    after = world.start_another_operator()
    after.create("delete", deletionPolicy="Delete")
    after.create("retain")
    after.create("other", deletionPolicy="Delete", topicName="elsewhere")
    await after.reconcile()
    assert after.brokers.topics["delete"] != before["delete"]
    assert after.brokers.topics["retain"] == before["retain"] and after.brokers.topics["other"] == before["other"]
    (event,) = [it for it in after.events if it.startswith("TopicRetained")]
    assert event.endswith("no operator watched the deletion of their Topics: other, retain")
    event_count = len(after.events)
    await after.reconcile()
    assert len(after.events) == event_count, "the event is not repeated"


@async_test
async def test_a_topic_whose_resource_was_deleted_while_no_operator_watched_keeps_its_records() -> None:
    world = TopicWorld()
    world.create("flights", deletionPolicy="Delete")
    await world.reconcile()
    world.api.objects.pop(("Topic", KEY.namespace, "flights"))
    after = world.start_another_operator()
    await after.reconcile()
    assert "flights" in after.brokers.topics and not await after.recorded()
    assert any(it.startswith("TopicRetained: ") and it.endswith(": flights") for it in after.events)


@async_test
async def test_many_deletions_are_one_event() -> None:
    world = TopicWorld()
    for number in range(300):
        world.create(f"t{number:03}", deletionPolicy="Delete")
    await world.reconcile()
    for number in range(300):
        world.delete(f"t{number:03}")
    event_count = len(world.events)
    await world.reconcile()
    assert not world.brokers.topics and len(world.events) == event_count + 1
    assert world.events[-1].endswith(": t000, t001, t002, t003, t004, t005, t006, t007, t008, t009 and 290 more")


@async_test
async def test_a_topic_that_no_watch_has_delivered_yet_stays_recorded() -> None:
    world = TopicWorld()
    world.create("flights", deletionPolicy="Delete")
    await world.reconcile()
    early = TopicWorld(world.api, WatchCache(), world.brokers)
    await early.reconcile()
    assert "flights" in early.brokers.topics and await early.recorded() == {"flights": False}


@async_test
async def test_the_topic_of_a_deleted_resource_stays_if_another_resource_owns_it() -> None:
    world = TopicWorld()
    world.create("old", topicName="flights", deletionPolicy="Delete")
    await world.reconcile()
    before = world.brokers.topics["flights"]
    world.create("new", topicName="flights", deletionPolicy="Delete")
    world.delete("old")
    await world.reconcile()
    assert world.brokers.topics["flights"] == before and await world.recorded() == {"new": False}


@async_test
async def test_a_topic_that_cannot_be_deleted_does_not_block_others() -> None:
    world = TopicWorld()
    world.create("closed", deletionPolicy="Delete")
    await world.reconcile()
    world.brokers.undeletable = {"closed": "it is a copy of mirror west"}
    world.delete("closed")
    world.create("open")
    await world.reconcile()
    assert world.is_ready("open") and await world.recorded() == {"closed": True}
    assert any(it.startswith("TopicDeletionFailed: ") and "mirror west" in it for it in world.events)
    world.brokers.undeletable = {}
    await world.reconcile()
    assert world.brokers.topics.keys() == {"open"} and not await world.recorded()


@async_test
async def test_a_rejected_status_of_one_topic_does_not_block_others() -> None:
    for status in (409, 422, 500, 403):
        world = TopicWorld()
        world.create("bad")
        world.create("good", deletionPolicy="Delete")
        world.reject("status Topic bad", status)
        assert await world.reconcile() < 10
        assert world.is_ready("good") and await world.recorded() == {"good": False}
        assert any(it.startswith("StatusWriteFailed: ") for it in world.events)
        world.accept_all()
        await world.reconcile()
        assert world.is_ready("bad")


@async_test
async def test_an_unavailable_api_server_does_not_get_a_request_for_every_topic() -> None:
    world = TopicWorld()
    for number in range(100):
        world.create(f"t{number}")
    rejected = world.reject("status", 429)
    with pytest.raises(ApiError):
        await world.reconcile()
    assert len(rejected) <= 16


@async_test
async def test_a_deletion_policy_that_cannot_be_recorded_concerns_only_topics_with_delete() -> None:
    world = TopicWorld()
    world.create("gone", deletionPolicy="Delete")
    world.create("kept")
    world.reject("apply ConfigMap", 422)
    await world.reconcile()
    assert world.is_ready("kept")
    assert not world.is_ready("gone") and world.reason("gone") == "DeletionPolicyNotRecorded"
    world.accept_all()
    await world.reconcile()
    assert world.is_ready("gone") and await world.recorded() == {"gone": False}


@async_test
async def test_a_topic_that_brokers_do_not_describe_does_not_block_others() -> None:
    world = TopicWorld()
    world.create("hidden")
    world.create("open")
    world.brokers.unauthorized = {"hidden"}
    await world.reconcile()
    assert world.is_ready("open") and not world.is_ready("hidden")


@async_test
async def test_converged_topics_are_not_written_again() -> None:
    world = TopicWorld()
    for number in range(50):
        world.create(f"t{number}", deletionPolicy="Delete")
    await world.reconcile()
    before = list(world.api.writes)
    assert await world.reconcile() == 10.0
    assert world.api.writes == before


@async_test
async def test_unreadable_deletion_records_delete_nothing_and_block_nothing() -> None:
    for text in ("{", "[]", '{"a": 1}', '{"flights": ["flights", "id"]}', '{"u": ["flights", "flights"]}'):
        world = TopicWorld()
        world.create("flights", deletionPolicy="Delete")
        await world.reconcile()
        world.api.objects["ConfigMap", KEY.namespace, "demo-topics-to-delete"]["data"]["topics.json"] = text
        await world.reconcile()
        assert world.is_ready("flights") and await world.recorded() == {"flights": False}


def test_a_deletion_does_not_drop_another_resource_of_the_same_name() -> None:
    cache = WatchCache()
    for kind, cached in (("Topic", cache.topics), ("Cluster", cache.clusters)):
        old, new = resource("same", "1", kind=kind), resource("same", "2", kind=kind)
        cache.update(old, is_deleted=False)
        cache.update(new, is_deleted=False)
        # kopf handles the events of two resources, which have different uids, in any order.
        cache.update(old, is_deleted=True)
        assert [it["metadata"]["uid"] for it in cache.all() if it["kind"] == kind] == ["2"], cached


def test_deletions_that_are_never_reconciled_are_bounded() -> None:
    cache = WatchCache()
    for number in range(10_100):
        cache.update(resource("flights", str(number)), is_deleted=True)
    assert len(cache.deleted_topics[KEY]) == 10_000


@async_test
async def test_a_status_is_not_written_to_another_resource_of_the_same_name() -> None:
    world = TopicWorld()
    world.create("flights")
    old = reduce_resource(world.api.objects["Topic", KEY.namespace, "flights"])
    world.create("flights")
    world.cache.topics[KEY]["flights"] = old  # no watch has shown the new one yet
    await world.reconcile()
    assert world.status("flights") == {}
    world.cache.update(world.api.objects["Topic", KEY.namespace, "flights"], is_deleted=False)
    await world.reconcile()
    assert world.is_ready("flights")


@async_test
async def test_a_status_is_written_after_a_conflict() -> None:
    world = TopicWorld()
    world.create("flights")
    world.api.objects["Topic", KEY.namespace, "flights"]["metadata"]["resourceVersion"] = "later"
    await world.reconcile()
    assert world.is_ready("flights")
