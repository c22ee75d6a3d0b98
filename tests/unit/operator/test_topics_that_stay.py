"""Topics whose resources are gone: which go with them, and which stay with their records."""

import pytest

from ottla_operator.kube.api import ApiError
from ottla_operator.kube.known import Known, slim
from ottla_operator.plan.topic_deletion import DeletionRecord
from tests.unit.operator.brokers_of_topics import KEY, Looking, body
from tests.unit.operator.loop import on_loop


@on_loop
async def test_who_says_retain_and_deletes_the_resource_before_anybody_has_looked_keeps_the_topic() -> None:
    looking = Looking()
    looking.make("kept", deletionPolicy="Delete")
    looking.make("gone", deletionPolicy="Delete")
    await looking.look()
    looking.delete("kept", deletionPolicy="Retain")  # the last that a watch shows of it
    looking.delete("gone")
    await looking.look()
    assert looking.topics.keys() == {"kept"} and not await looking.noted()
    assert looking.known.gone == {KEY: {}}, "nothing is kept in mind for ever"


@on_loop
async def test_who_says_retain_is_heard_although_no_broker_can_be_asked() -> None:
    looking = Looking()
    looking.make("kept", deletionPolicy="Delete")
    looking.make("gone", deletionPolicy="Delete")
    await looking.look()
    looking.away = True
    looking.make("kept", again=False, deletionPolicy="Retain")
    looking.delete("gone")
    await looking.look()
    assert await looking.noted() == {"gone": True}
    after = looking.another_operator()
    after.away = False
    await after.look()
    assert after.topics.keys() == {"kept"}, "what was seen by one operator is known to the next"


@on_loop
async def test_one_that_is_made_anew_before_anybody_has_looked_begins_without_records() -> None:
    looking = Looking()
    looking.make("again", deletionPolicy="Delete")
    looking.make("kept", deletionPolicy="Delete")
    await looking.look()
    before = dict(looking.topics)
    looking.delete("again")
    looking.make("again", deletionPolicy="Delete")
    looking.delete("kept", deletionPolicy="Retain")
    looking.make("kept", deletionPolicy="Delete")
    await looking.look()
    assert looking.topics["again"] != before["again"] and looking.topics["kept"] == before["kept"]
    assert looking.status("again")["topicId"] == str(looking.topics["again"])
    assert (await looking.ledger()).by_uid == {
        looking.uid(name): DeletionRecord(name, name, str(looking.topics[name])) for name in ("again", "kept")
    }


@on_loop
async def test_one_that_is_made_anew_while_nobody_watches_begins_without_records_only_when_both_say_delete() -> None:
    looking = Looking()
    for name in ("delete", "retain", "other"):
        looking.make(name, deletionPolicy="Delete")
    await looking.look()
    before = dict(looking.topics)
    after = looking.another_operator()
    after.make("delete", deletionPolicy="Delete")
    after.make("retain")
    after.make("other", deletionPolicy="Delete", topicName="elsewhere")
    await after.look()
    assert after.topics["delete"] != before["delete"]
    assert after.topics["retain"] == before["retain"] and after.topics["other"] == before["other"]
    (kept,) = [it for it in after.said if it.startswith("TopicKept")]
    assert kept.endswith("with their records stay: other, retain")
    said = len(after.said)
    await after.look()
    assert len(after.said) == said, "it is said once"


@on_loop
async def test_one_that_went_while_nobody_watched_keeps_its_records_and_it_is_said() -> None:
    looking = Looking()
    looking.make("flights", deletionPolicy="Delete")
    await looking.look()
    looking.api.objects.pop(("Topic", KEY.namespace, "flights"))
    after = looking.another_operator()
    await after.look()
    assert "flights" in after.topics and not await after.noted()
    assert any(it.startswith("TopicKept: ") and it.endswith(": flights") for it in after.said)


@on_loop
async def test_many_that_go_at_once_are_told_once() -> None:
    looking = Looking()
    for number in range(300):
        looking.make(f"t{number:03}", deletionPolicy="Delete")
    await looking.look()
    for number in range(300):
        looking.delete(f"t{number:03}")
    said = len(looking.said)
    await looking.look()
    assert not looking.topics and len(looking.said) == said + 1
    assert looking.said[-1].endswith(": t000, t001, t002, t003, t004, t005, t006, t007, t008, t009 and 290 more")


@on_loop
async def test_one_that_is_there_and_that_no_watch_has_shown_yet_stays_noted() -> None:
    looking = Looking()
    looking.make("flights", deletionPolicy="Delete")
    await looking.look()
    early = looking.another_operator()
    early.known = Known()
    await early.look()
    assert "flights" in early.topics and await early.noted() == {"flights": False}


@on_loop
async def test_a_topic_that_another_resource_owns_by_then_stays() -> None:
    looking = Looking()
    looking.make("old", topicName="flights", deletionPolicy="Delete")
    await looking.look()
    before = looking.topics["flights"]
    looking.make("new", topicName="flights", deletionPolicy="Delete")
    looking.delete("old")
    await looking.look()
    assert looking.topics["flights"] == before and await looking.noted() == {"new": False}


@on_loop
async def test_a_topic_that_cannot_be_deleted_is_said_and_keeps_nobody_waiting() -> None:
    looking = Looking()
    looking.make("closed", deletionPolicy="Delete")
    await looking.look()
    looking.refusing = {"closed": "it is a copy of mirror west"}
    looking.delete("closed")
    looking.make("open")
    await looking.look()
    assert looking.condition("open") == "True" and await looking.noted() == {"closed": True}
    assert any(it.startswith("TopicNotDeleted: ") and "mirror west" in it for it in looking.said)
    looking.refusing = {}
    await looking.look()
    assert looking.topics.keys() == {"open"} and not await looking.noted()


@on_loop
async def test_the_status_that_one_topic_is_refused_keeps_no_other_waiting() -> None:
    for status in (409, 422, 500, 403):
        looking = Looking()
        looking.make("bad")
        looking.make("good", deletionPolicy="Delete")
        looking.refuse("status Topic bad", status)
        assert await looking.look() < 10
        assert looking.condition("good") == "True" and await looking.noted() == {"good": False}
        assert any(it.startswith("StatusNotWritten: ") for it in looking.said)
        looking.refuse_nothing()
        await looking.look()
        assert looking.condition("bad") == "True"


@on_loop
async def test_an_api_server_that_is_away_or_has_too_much_to_do_is_not_asked_for_each_topic() -> None:
    looking = Looking()
    for number in range(100):
        looking.make(f"t{number}")
    asked = looking.refuse("status", 429)
    with pytest.raises(ApiError):
        await looking.look()
    assert len(asked) <= 16


@on_loop
async def test_what_cannot_be_noted_is_a_condition_of_those_that_it_concerns_and_of_no_other() -> None:
    looking = Looking()
    looking.make("gone", deletionPolicy="Delete")
    looking.make("kept")
    looking.refuse("apply ConfigMap", 422)
    await looking.look()
    assert looking.condition("kept") == "True"
    assert looking.condition("gone") == "False" and looking.reason("gone") == "NotNoted"
    looking.refuse_nothing()
    await looking.look()
    assert looking.condition("gone") == "True" and await looking.noted() == {"gone": False}


@on_loop
async def test_a_topic_that_brokers_do_not_tell_of_keeps_no_other_waiting() -> None:
    looking = Looking()
    looking.make("hidden")
    looking.make("open")
    looking.hidden = {"hidden"}
    await looking.look()
    assert looking.condition("open") == "True" and looking.condition("hidden") == "False"


@on_loop
async def test_what_is_as_wished_is_not_written_again() -> None:
    looking = Looking()
    for number in range(50):
        looking.make(f"t{number}", deletionPolicy="Delete")
    await looking.look()
    before = list(looking.api.writes)
    assert await looking.look() == 10.0
    assert looking.api.writes == before


@on_loop
async def test_a_ledger_that_somebody_has_spoilt_deletes_nothing_and_stops_nobody() -> None:
    for text in ("{", "[]", '{"a": 1}', '{"flights": ["flights", "id"]}', '{"u": ["flights", "flights"]}'):
        looking = Looking()
        looking.make("flights", deletionPolicy="Delete")
        await looking.look()
        looking.api.objects["ConfigMap", KEY.namespace, "demo-topics-to-delete"]["data"]["topics.json"] = text
        await looking.look()
        assert looking.condition("flights") == "True" and await looking.noted() == {"flights": False}


def test_what_goes_takes_nothing_with_it_that_has_come_in_its_place() -> None:
    known = Known()
    for kind, where in (("Topic", known.topics), ("Cluster", known.clusters)):
        old, new = body("same", "1", kind=kind), body("same", "2", kind=kind)
        known.see(old, gone=False)
        known.see(new, gone=False)
        known.see(old, gone=True)  # what watches show of two resources comes in any order
        assert [it["metadata"]["uid"] for it in known.every() if it["kind"] == kind] == ["2"], where


def test_that_nobody_looks_at_what_was_seen_to_go_fills_no_memory() -> None:
    known = Known()
    for number in range(10_100):
        known.see(body("flights", str(number)), gone=True)
    assert len(known.gone[KEY]) == 10_000


@on_loop
async def test_a_status_is_never_written_on_what_has_come_in_its_place() -> None:
    looking = Looking()
    looking.make("flights")
    old = slim(looking.api.objects["Topic", KEY.namespace, "flights"])
    looking.make("flights")
    looking.known.topics[KEY]["flights"] = old  # no watch has shown the new one yet
    await looking.look()
    assert looking.status("flights") == {}
    looking.known.see(looking.api.objects["Topic", KEY.namespace, "flights"], gone=False)
    await looking.look()
    assert looking.condition("flights") == "True"


@on_loop
async def test_a_status_is_written_although_somebody_has_changed_the_resource_meanwhile() -> None:
    looking = Looking()
    looking.make("flights")
    looking.api.objects["Topic", KEY.namespace, "flights"]["metadata"]["resourceVersion"] = "later"
    await looking.look()
    assert looking.condition("flights") == "True"
