"""A Mirror as settings of brokers, and its conditions and status."""

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
    find_unsupported,
    mirror_conditions,
    mirror_settings,
    plan_mirror_changes,
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


def partition(partition: int = 0, state: str = "Replicating", end: int = 10, **fields: Any) -> ObservedMirrorPartition:
    return ObservedMirrorPartition("t", partition, state, end, **fields)


def evaluate(desired: Mapping[str, str], partitions: Sequence[ObservedMirrorPartition], **mirror: Any) -> Readiness:
    return plan.evaluate_mirror(desired, partitions, ObservedMirror(**mirror))


def status(desired: Mapping[str, str], partitions: Sequence[ObservedMirrorPartition], **mirror: Any) -> dict[str, Any]:
    return plan.mirror_status_fields(desired, partitions, ObservedMirror(**mirror))


@pytest.mark.parametrize(
    ("sync", "topics"), [({}, "*,!x"), ({"schemas": True}, "*,!x,_schemas"), ({"schemas": False}, "*,!x,!_schemas")]
)
def test_schemas_are_a_topic_that_is_mirrored_or_left_out(sync: dict[str, bool], topics: str) -> None:
    assert mirror_settings(mirror(sync=sync), "w:9092")["topics"] == topics


def test_the_condition_of_schemas_says_why_they_are_not_copied() -> None:
    wanted, copied = mirror(sync={"schemas": True}), ObservedMirrorPartition("_schemas", 0, "Replicating", 5, lag=0)
    assert plan.schemas_condition(mirror(), [copied], ObservedMirror()) == []
    (found,) = plan.schemas_condition(wanted, [partition(), copied], ObservedMirror())
    assert (found.is_true, found.reason) == (True, "SchemasCopied")
    (found,) = plan.schemas_condition(wanted, [partition()], ObservedMirror())
    assert (found.is_true, found.reason) == (False, "NoSchemas")
    (found,) = plan.schemas_condition(wanted, [], ObservedMirror(refused_topics={"_schemas": "not mirrored"}))
    assert (found.is_true, found.reason) == (False, "SchemasRefused") and "not mirrored" in found.message


@pytest.mark.parametrize(
    ("role", "state", "lag", "reason", "message"),
    [
        ("Replicate", "Joining", 0, "JoiningSource", "finding the offset up to which _schemas-0 equals its source"),
        ("Replicate", "Stopped", 0, "SourceTruncated", "_schemas-0 is stopped: why"),
        ("Replicate", "Diverged", 0, "Diverged", "_schemas-0 is stopped: why"),
        ("Replicate", "Unreachable", 0, "SourceUnreachable", "_schemas-0: why"),
        ("Replicate", FAILED_OVER, 0, "JoiningSource", "_schemas has failed over and is becoming a copy again"),
        (FAILED_OVER, "FailingOver", 0, "FailingOver", "not writable yet"),
        (FAILED_OVER, FAILED_OVER, 0, FAILED_OVER, "open for writing"),
        ("Paused", "Paused", 0, "Paused", "copying is paused"),
        ("Replicate", "Replicating", 2, "Lagging", "_schemas: 2 records not copied yet"),
        ("Replicate", "Replicating", UNKNOWN, "Lagging", "_schemas: lag of 1 partition unknown"),
        ("Replicate", UNREPORTED, UNKNOWN, "Lagging", "_schemas: lag of 1 partition unknown"),
    ],
)
def test_schemas_are_not_copied_while_their_topic_may_differ(
    role: str, state: str, lag: int, reason: str, message: str
) -> None:
    copied = ObservedMirrorPartition("_schemas", 0, state, 5, lag=lag, reason="why")
    others = [partition(lag=3), partition(1, state=UNREPORTED)]
    (found,) = plan.schemas_condition(
        mirror(sync={"schemas": True}, role=role), [*others, copied], ObservedMirror(source_error="no groups")
    )
    assert (found.is_true, found.reason) == (False, reason) and message in found.message


def test_a_spec_becomes_settings_of_the_brokers() -> None:
    assert mirror_settings(mirror(), "w:9092") == {
        "bootstrap.servers": "w:9092",
        "topics": "*,!x",
        "role": "Replicate",
        "on.source.truncation": "Stop",
        "on.divergence": "Stop",
        "sync.configs": "true",
    }
    desired = mirror_settings(
        mirror(groups=["a", "b*"], role="Paused", onSourceTruncation="Resync", sync={"configs": False}), "w:9092"
    )
    assert (desired["groups"], desired["role"], desired["sync.configs"]) == ("a,b*", "Paused", "false")
    assert "groups" not in mirror_settings(mirror(groups=["a"], sync={"groups": False}), "w:9092")
    assert mirror_settings(mirror(naming="Prefix", prefix="w."), "w:9092")["prefix"] == "w."
    assert mirror_settings(mirror(offsets="Appended"), "w:9092")["offsets"] == "Appended"


@given(st.dictionaries(st.sampled_from(["topics", "groups", "role", "metadata.max.age.ms"]), st.text(max_size=3)))
def test_settings_that_are_set_are_not_changed_again(before: dict[str, str]) -> None:
    desired = mirror_settings(mirror(), "w:9092")
    after = {**before, **plan_mirror_changes(desired, before)}
    current = {name: value for name, value in after.items() if value is not None}
    assert plan_mirror_changes(desired, current) == {}
    assert desired.items() <= current.items()
    assert current.get("metadata.max.age.ms") == before.get("metadata.max.age.ms"), (
        "settings without a field in the spec are left alone"
    )
    assert "groups" not in current


def test_groups_are_unsupported_with_appended_offsets() -> None:
    appended = find_unsupported(mirror(offsets="Appended", groups=["a"]))
    assert appended.count("spec.") == 1 and appended.startswith("spec.groups ")
    assert find_unsupported(mirror()) == ""


def test_access_rules_are_copied_only_if_the_spec_says_so() -> None:
    with_acls = mirror_settings(mirror(sync={"acls": True}), "w:9092")
    assert with_acls["sync.acls"] == "true"
    assert "sync.acls" not in mirror_settings(mirror(), "w:9092")
    assert plan_mirror_changes(mirror_settings(mirror(), "w:9092"), with_acls) == {"sync.acls": None}


def test_states_of_partitions_become_conditions() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    assert evaluate(desired, []) == Reconciling("NoTopicsMatched", "no topic of the source is copied yet")
    assert evaluate(desired, [partition(source_end=12, lag=2)]) == Ready(
        "1 topic copied, 2 records behind.", "Replicating"
    )
    assert evaluate(desired, [partition(lag=2), partition(1)]) == Ready(
        "1 topic copied, 2 records behind (lag of 1 partition unknown).", "Replicating"
    )
    assert isinstance(evaluate(desired, [partition(), partition(1, "Unreachable", reason="no route")]), Reconciling)
    stopped = evaluate(
        desired, [partition(), partition(1, "Stopped", reason="the source has lost records"), partition(2, "Stopped")]
    )
    assert stopped == Stalled("SourceTruncated", "t-1 is stopped: the source has lost records (and 1 more)")
    failed_over = mirror_settings(mirror(role=FAILED_OVER), "w:9092")
    assert isinstance(evaluate(failed_over, [partition(state="FailingOver")]), Reconciling)
    done = evaluate(failed_over, [partition(state=FAILED_OVER, lag=3), partition(1, FAILED_OVER, lag=UNKNOWN)])
    assert done == Ready(
        "open for writing; the source was 3 records ahead when last reached, and was never reached for 1 partition",
        FAILED_OVER,
    )
    assert evaluate(failed_over, [partition(state=UNREPORTED)]) == Ready(
        "failed over; no broker reports a copied partition now", FAILED_OVER
    )
    ahead = evaluate(failed_over, [partition(state=FAILED_OVER, lag=1)])
    assert ahead == Ready("open for writing; the source was 1 record ahead when last reached", FAILED_OVER)
    assert evaluate(mirror_settings(mirror(role="Paused"), "w:9092"), [partition(state="Paused")]).reason == "Paused"


def test_a_mirror_without_lag_is_safe_to_fail_over_and_in_sync_if_its_source_responds() -> None:
    def conditions_of(*partitions: ObservedMirrorPartition) -> tuple[bool, bool]:
        in_sync, safe = mirror_conditions(partitions)
        return in_sync.is_true, safe.is_true

    assert conditions_of(partition(lag=0)) == (True, True)
    assert conditions_of(partition(lag=0), partition(1, lag=1)) == (False, False)
    assert conditions_of(partition(lag=0), partition(1, lag=UNKNOWN)) == (False, False)
    assert conditions_of(partition(lag=0, state="Unreachable")) == (False, True), (
        "every record that was reported is copied"
    )
    assert conditions_of() == (False, False)
    (in_sync, _) = mirror_conditions([partition(lag=0, state="Stopped")])
    assert in_sync.message == "1 partition stopped or cut off from the source"


def test_the_status_is_valid() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    found = status(desired, [partition(lag=2, lag_seconds=1.5, source_epoch=4), partition(1, "Stopped", lag=UNKNOWN)])
    parsed = MirrorStatus.parse(found)
    assert parsed.role == "Replicate" and parsed.lag_records == 2 and parsed.lag_seconds == 1.5
    assert parsed.topics is not None
    assert (parsed.topics[0].state, parsed.topics[0].source_epoch) == ("Stopped", 4)


def test_diverging_records_stall_the_mirror() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    partitions = [
        partition(0, "Diverged", 137, diverging_records=37),
        partition(1),
        partition(2, "Diverged", 5, diverging_records=5),
    ]
    readiness = evaluate(desired, partitions)
    assert isinstance(readiness, Stalled) and readiness.reason == "Diverged"
    message = (
        "42 records are here and not at the source (t-0: 37, t-2: 5); onDivergence: Truncate writes them "
        "to files and truncates the logs"
    )
    assert readiness.message == message
    assert [(it.type, it.is_true, it.reason, it.message) for it in mirror_conditions(partitions)] == [
        ("InSync", False, "Diverged", message),
        ("FailoverSafe", False, "Diverged", message),
    ]
    many = [partition(index, "Diverged", 9, diverging_records=1) for index in range(5)]
    assert "(t-0: 1, t-1: 1, t-2: 1 and 2 more)" in evaluate(desired, many).message
    one = evaluate(desired, [partition(0, "Diverged", 9, diverging_records=1)])
    assert one.message.startswith("1 record is here and not at the source (t-0: 1); ")
    unproven = [partition(0, "Diverged", 9, reason="the source does not say")]
    assert evaluate(desired, unproven).message == "t-0 is stopped: the source does not say"
    (topic,) = status(desired, partitions)["topics"]
    assert topic["state"] == "Stopped"
    joining = evaluate(desired, [partition(0, "Joining", 9, reason="no broker answers")])
    assert isinstance(joining, Reconciling) and joining.message.endswith("no broker answers")


def test_a_throttle_is_set_in_bytes_per_second_and_unset() -> None:
    desired = mirror_settings(mirror(throttle="1.5M"), "w:9092")
    assert desired["throttled.rate"] == "1500000"
    assert plan_mirror_changes(mirror_settings(mirror(), "w:9092"), desired) == {"throttled.rate": None}
    assert plan_mirror_changes(desired, desired) == {}


def test_lag_in_bytes_is_reported_where_it_is_known() -> None:
    found = status(
        mirror_settings(mirror(), "w:9092"),
        [partition(0, lag=2, lag_bytes=2000), partition(1, lag=1, lag_bytes=UNKNOWN)],
    )
    assert found["lagBytes"] == 2000 and found["topics"][0]["lagBytes"] == 2000
    MirrorStatus.parse(found)


def test_refused_topics_are_reported() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    error = "the source at w:9092: Authentication failed"
    for partitions in ([], [partition()]):
        assert evaluate(desired, partitions, source_error=error) == Reconciling("SourceUnreachable", error)
        error_here = "the target cluster: coordinator_load_in_progress"
        assert evaluate(desired, partitions, target_error=error_here) == Reconciling("RetryingAfterError", error_here)
    reason = "a topic of that name exists and is not mirrored: delete it, or exclude it from the mirror's topics"
    refused = {"x": reason, "y": "the source's topic 'y' has records from this cluster"}
    assert evaluate(desired, [], refused_topics=refused) == Reconciling(
        "NoTopicsMatched", f"no topic of the source is copied yet; x is not copied: {reason} (and 1 more)"
    )
    readiness = evaluate(desired, [partition(lag=0)], refused_topics={"x": reason})
    assert readiness == Ready(f"1 topic copied, 0 records behind; x is not copied: {reason}.", "Replicating")
    found = status(desired, [partition(lag=0)], refused_topics={"x": reason})
    assert found["topics"] == [
        {"topic": "t", "state": "Replicating", "lagRecords": 0},
        {"topic": "x", "state": "Refused", "why": reason},
    ]
    MirrorStatus.parse(found)


def test_a_silent_source_is_reported() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    assert status(desired, [partition(lag=0, silent_seconds=0.4)]) == status(
        desired, [partition(lag=0, silent_seconds=0.1)]
    )
    silent = [
        partition(lag=0, silent_seconds=0.1),
        partition(1, "Unreachable", lag=0, silent_seconds=31.7, reason="no answer"),
    ]
    found = status(desired, silent)
    assert found["silentSeconds"] == 31
    (topic,) = found["topics"]
    assert (topic["state"], topic["silentSeconds"], topic["why"]) == ("Failed", 31, "no answer")
    MirrorStatus.parse(found)
    assert evaluate(desired, silent) == Reconciling("SourceUnreachable", "t-1: no answer")
    in_sync, safe = mirror_conditions(silent)
    assert (in_sync.is_true, safe.is_true) == (False, True)


def test_a_failover_that_the_resource_did_not_request_stalls_the_mirror() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    failed_over = {"role": FAILED_OVER}
    for before in (None, "Replicate", "Paused"):
        found = find_unrequested_failover(desired, failed_over, before)
        assert found is not None and "set role: FailedOver here too" in found.message
    assert find_unrequested_failover(desired, failed_over, FAILED_OVER) is None
    assert find_unrequested_failover(desired, {"role": "Paused"}, None) is None
    assert find_unrequested_failover(desired, {}, None) is None
    assert find_unrequested_failover(mirror_settings(mirror(role=FAILED_OVER), "w:9092"), failed_over, None) is None


def test_partitions_that_have_failed_over_are_no_copies() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    partitions = [partition(state=FAILED_OVER, lag=0), partition(1, FAILED_OVER, lag=0)]
    assert isinstance(evaluate(desired, partitions), Reconciling), "the source was not read yet"
    reason = "its copy has failed over"
    assert evaluate(desired, partitions, refused_topics={"t": reason}) == Stalled(
        "FailedOver", f"nothing is copied into t: {reason}"
    )
    assert evaluate(desired, partitions, source_error="no route") == Reconciling("SourceUnreachable", "no route")
    in_sync, safe = mirror_conditions(partitions)
    assert (in_sync.is_true, in_sync.reason, safe.is_true) == (False, FAILED_OVER, True)


def test_partitions_that_no_broker_reports_are_not_safe() -> None:
    desired = mirror_settings(mirror(), "w:9092")
    found = [partition(0, lag=0)]
    unreported = [*found, partition(1, UNREPORTED, UNKNOWN, reason="its leader, broker 2, does not answer")]
    assert [it.is_true for it in mirror_conditions(found)] == [True, True]
    assert [(it.is_true, it.message) for it in mirror_conditions(unreported)] == [
        (False, "lag of 1 partition unknown")
    ] * 2
    assert evaluate(desired, unreported) == evaluate(desired, found)
    assert status(desired, unreported) == status(desired, found)


def test_status_lists_the_topics_with_problems_out_of_thousands() -> None:
    fine = [ObservedMirrorPartition(f"t{number:04}", 0, "Replicating", 1, lag=number) for number in range(3_000)]
    bad = [ObservedMirrorPartition("zz", 0, "Stopped", 1, lag=0), ObservedMirrorPartition("aa", 0, "Unreachable", 1)]
    found = plan.mirror_status_fields({"role": "Replicate"}, [*fine, *bad], ObservedMirror())
    names = [it["topic"] for it in found["topics"]]
    assert len(names) == 500 and names == sorted(names) and names[0] == "aa" and names[-1] == "zz"
    assert names[1] == "t2502" and found["lagRecords"] == sum(range(3_000)), "the sum is of all topics"
