"""What a Mirror resource means in settings of brokers, and what is said of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan import mirror as plan
from ottla_operator.plan.conditions import Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.mirror import (
    FAILED_OVER,
    UNKNOWN,
    UNREPORTED,
    ObservedMirror,
    ObservedMirrorPartition,
    find_unrequested_failover,
    mirror_conditions,
    mirror_settings,
    plan_mirror_changes,
    unsupported_fields,
)
from ottla_operator.resources.mirror import Mirror, MirrorStatus


def mirror(**spec: Any) -> Mirror:
    return Mirror.parse(
        {
            "apiVersion": "ottla.dev/v1alpha1",
            "kind": "Mirror",
            "metadata": {"name": "west"},
            "spec": {
                "source": {"bootstrap": "w:9092"},
                "target": {"clusterRef": {"name": "here"}},
                "topics": ["*", "!x"],
                **spec,
            },
        }
    )


def seen(partition: int = 0, state: str = "Replicating", end: int = 10, **how: Any) -> ObservedMirrorPartition:
    return ObservedMirrorPartition("t", partition, state, end, **how)


def verdict(wanted: Mapping[str, str], seen: Sequence[ObservedMirrorPartition], **itself: Any) -> Readiness:
    return plan.evaluate_mirror(wanted, seen, ObservedMirror(**itself))


def status(wanted: Mapping[str, str], seen: Sequence[ObservedMirrorPartition], **itself: Any) -> dict[str, Any]:
    return plan.mirror_status_fields(wanted, seen, ObservedMirror(**itself))


def test_settings_are_the_spec_in_the_brokers_words() -> None:
    assert mirror_settings(mirror(), "w:9092") == {
        "bootstrap.servers": "w:9092",
        "topics": "*,!x",
        "role": "Replicate",
        "on.source.truncation": "Stop",
        "on.divergence": "Stop",
        "sync.configs": "true",
    }
    wanted = mirror_settings(
        mirror(groups=["a", "b*"], role="Paused", onSourceTruncation="Resync", sync={"configs": False}), "w:9092"
    )
    assert (wanted["groups"], wanted["role"], wanted["sync.configs"]) == ("a,b*", "Paused", "false")
    assert "groups" not in mirror_settings(mirror(groups=["a"], sync={"groups": False}), "w:9092")
    assert mirror_settings(mirror(naming="Prefix", prefix="w."), "w:9092")["prefix"] == "w."
    assert mirror_settings(mirror(offsets="Appended"), "w:9092")["offsets"] == "Appended"


@given(st.dictionaries(st.sampled_from(["topics", "groups", "role", "metadata.max.age.ms"]), st.text(max_size=3)))
def test_what_was_set_once_is_not_set_again(before: dict[str, str]) -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    after = {**before, **plan_mirror_changes(wanted, before)}
    now = {name: value for name, value in after.items() if value is not None}
    assert plan_mirror_changes(wanted, now) == {}
    assert wanted.items() <= now.items()
    assert now.get("metadata.max.age.ms") == before.get("metadata.max.age.ms"), "a person's own affair"
    assert "groups" not in now


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"offsets": "Appended", "groups": ["a"]}, "groups"),
        ({"sync": {"acls": True}}, "sync.acls"),
    ],
)
def test_what_is_not_served_yet_is_named(spec: dict[str, Any], field: str) -> None:
    assert [it.field for it in unsupported_fields(mirror(**spec))] == [field]
    assert unsupported_fields(mirror()) == []


def test_verdicts() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    assert verdict(wanted, []) == Reconciling("NoTopics", "no topic of the source is copied yet")
    assert verdict(wanted, [seen(source_end=12, lag=2)]) == Ready(
        "1 topics are copied, 2 records behind.", "Replicating"
    )
    assert isinstance(verdict(wanted, [seen(), seen(1, "Unreachable", reason="no route")]), Reconciling)
    stopped = verdict(wanted, [seen(), seen(1, "Stopped", reason="the source has lost records"), seen(2, "Stopped")])
    assert stopped == Stalled("SourceParted", "t-1 stands still: the source has lost records (and 1 more)")
    over = mirror_settings(mirror(role=FAILED_OVER), "w:9092")
    assert isinstance(verdict(over, [seen(state="FailingOver")]), Reconciling)
    done = verdict(over, [seen(state=FAILED_OVER, lag=3), seen(1, FAILED_OVER, lag=UNKNOWN)])
    assert done == Ready(
        "open for writing; the source was 3 records ahead when last seen, and was not seen for 1 partitions",
        FAILED_OVER,
    )
    assert verdict(mirror_settings(mirror(role="Paused"), "w:9092"), [seen(state="Paused")]).reason == "Paused"


def test_aspects() -> None:
    def holds(*parts: ObservedMirrorPartition) -> tuple[bool, bool]:
        in_sync, safe = mirror_conditions(parts)
        return in_sync.is_true, safe.is_true

    assert holds(seen(lag=0)) == (True, True)
    assert holds(seen(lag=0), seen(1, lag=1)) == (False, False)
    assert holds(seen(lag=0), seen(1, lag=UNKNOWN)) == (False, False)
    assert holds(seen(lag=0, state="Unreachable")) == (False, True), "what was seen of it is here"
    assert holds() == (False, False)


def test_the_status_fits_the_resource() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    found = status(wanted, [seen(lag=2, lag_seconds=1.5, source_epoch=4), seen(1, "Stopped", lag=UNKNOWN)])
    told = MirrorStatus.parse(found)
    assert told.role == "Replicate" and told.lag_records == 2 and told.lag_seconds == 1.5
    assert told.topics is not None
    assert (told.topics[0].state, told.topics[0].source_epoch) == ("Stopped", 4)


def test_what_diverged_waits_for_a_person_and_says_how_much_of_what() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    parts = [seen(0, "Diverged", 137, diverging_records=37), seen(1), seen(2, "Diverged", 5, diverging_records=5)]
    judged = verdict(wanted, parts)
    assert isinstance(judged, Stalled) and judged.reason == "Diverged"
    said = "42 records are here and not at the source (t-0: 37, t-2: 5); onDivergence: Truncate writes them to files and cuts them off"
    assert judged.message == said
    assert [(it.type, it.is_true, it.reason, it.message) for it in mirror_conditions(parts)] == [
        ("InSync", False, "Diverged", said),
        ("FailoverSafe", False, "Diverged", said),
    ]
    many = [seen(partition, "Diverged", 9, diverging_records=1) for partition in range(5)]
    assert "(t-0: 1, t-1: 1, t-2: 1 and 2 more)" in verdict(wanted, many).message
    unproven = [seen(0, "Diverged", 9, reason="the source does not say")]
    assert verdict(wanted, unproven).message == "t-0 stands still: the source does not say"
    (topic,) = status(wanted, parts)["topics"]
    assert topic["state"] == "Stopped"
    joining = verdict(wanted, [seen(0, "Joining", 9, reason="no broker answers")])
    assert isinstance(joining, Reconciling) and joining.message.endswith("no broker answers")


def test_a_throttle_is_bytes_a_second_and_can_be_taken_off() -> None:
    wanted = mirror_settings(mirror(throttle="1.5M"), "w:9092")
    assert wanted["throttled.rate"] == "1500000"
    assert plan_mirror_changes(mirror_settings(mirror(), "w:9092"), wanted) == {"throttled.rate": None}
    assert plan_mirror_changes(wanted, wanted) == {}


def test_lag_in_bytes_is_told_where_it_is_known() -> None:
    told = status(
        mirror_settings(mirror(), "w:9092"), [seen(0, lag=2, lag_bytes=2000), seen(1, lag=1, lag_bytes=UNKNOWN)]
    )
    assert told["lagBytes"] == 2000 and told["topics"][0]["lagBytes"] == 2000
    MirrorStatus.parse(told)


def test_what_is_in_the_way_is_told() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    trouble = "the source at w:9092: Authentication failed"
    for parts in ([], [seen()]):
        assert verdict(wanted, parts, source_error=trouble) == Reconciling("SourceUnreachable", trouble)
    why = "a topic of that name exists and is not mirrored: delete it, or exclude it from the mirror's topics"
    refused = {"x": why, "y": "the source's topic 'y' has records from this cluster"}
    assert verdict(wanted, [], refused_topics=refused) == Reconciling(
        "NoTopics", f"no topic of the source is copied yet; x is not copied: {why} (and 1 more)"
    )
    judged = verdict(wanted, [seen(lag=0)], refused_topics={"x": why})
    assert judged == Ready(f"1 topics are copied, 0 records behind; x is not copied: {why}.", "Replicating")
    told = status(wanted, [seen(lag=0)], refused_topics={"x": why})
    assert told["topics"] == [
        {"topic": "t", "state": "Replicating", "lagRecords": 0},
        {"topic": "x", "state": "Refused", "why": why},
    ]
    MirrorStatus.parse(told)


def test_a_silent_source_is_told_and_one_that_answers_changes_nothing() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    assert status(wanted, [seen(lag=0, silent_seconds=0.4)]) == status(wanted, [seen(lag=0, silent_seconds=0.1)])
    silent = [
        seen(lag=0, silent_seconds=0.1),
        seen(1, "Unreachable", lag=0, silent_seconds=31.7, reason="nobody answers"),
    ]
    told = status(wanted, silent)
    assert told["silentSeconds"] == 31
    (topic,) = told["topics"]
    assert (topic["state"], topic["silentSeconds"], topic["why"]) == ("Failed", 31, "nobody answers")
    MirrorStatus.parse(told)
    assert verdict(wanted, silent) == Reconciling("SourceUnreachable", "t-1: nobody answers")
    in_sync, safe = mirror_conditions(silent)
    assert (in_sync.is_true, safe.is_true) == (False, True)


def test_a_failover_is_taken_back_only_by_who_wished_for_it() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    over = {"role": FAILED_OVER}
    for before in (None, "Replicate", "Paused"):
        told = find_unrequested_failover(wanted, over, before)
        assert told is not None and "set role: FailedOver here too" in told.message
    assert find_unrequested_failover(wanted, over, FAILED_OVER) is None
    assert find_unrequested_failover(wanted, {"role": "Paused"}, None) is None
    assert find_unrequested_failover(wanted, {}, None) is None
    assert find_unrequested_failover(mirror_settings(mirror(role=FAILED_OVER), "w:9092"), over, None) is None


def test_what_has_failed_over_is_no_copy_whatever_the_role_is() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    parts = [seen(state=FAILED_OVER, lag=0), seen(1, FAILED_OVER, lag=0)]
    assert isinstance(verdict(wanted, parts), Reconciling), "the source has not been looked at yet"
    why = "its copy has failed over"
    assert verdict(wanted, parts, refused_topics={"t": why}) == Stalled(
        "FailedOver", f"nothing is copied into t: {why}"
    )
    assert verdict(wanted, parts, source_error="away") == Reconciling("SourceUnreachable", "away")
    in_sync, safe = mirror_conditions(parts)
    assert (in_sync.is_true, in_sync.reason, safe.is_true) == (False, FAILED_OVER, True)


def test_what_nobody_tells_of_is_not_safe_and_changes_nothing_else() -> None:
    wanted = mirror_settings(mirror(), "w:9092")
    told = [seen(0, lag=0)]
    untold = [*told, seen(1, UNREPORTED, UNKNOWN, reason="its leader, broker 2, does not tell")]
    assert [it.is_true for it in mirror_conditions(told)] == [True, True]
    assert [(it.is_true, it.message) for it in mirror_conditions(untold)] == [
        (False, "1 partitions were not compared yet")
    ] * 2
    assert verdict(wanted, untold) == verdict(wanted, told)
    assert status(wanted, untold) == status(wanted, told)


def test_of_thousands_of_topics_those_are_told_that_somebody_has_to_look_at() -> None:
    fine = [ObservedMirrorPartition(f"t{number:04}", 0, "Replicating", 1, lag=number) for number in range(3_000)]
    bad = [ObservedMirrorPartition("zz", 0, "Stopped", 1, lag=0), ObservedMirrorPartition("aa", 0, "Unreachable", 1)]
    found = plan.mirror_status_fields({"role": "Replicate"}, [*fine, *bad], ObservedMirror())
    names = [it["topic"] for it in found["topics"]]
    assert len(names) == 500 and names == sorted(names) and names[0] == "aa" and names[-1] == "zz"
    assert names[1] == "t2502" and found["lagRecords"] == sum(range(3_000)), "and the sum is of all of them"
