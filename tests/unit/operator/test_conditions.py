"""Conditions have the right kstatus after each of several reconciles and edits of the spec."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.plan.conditions import (
    Conditions,
    ExtraCondition,
    Readiness,
    Ready,
    Reconciling,
    Stalled,
    describe_unready,
    kstatus,
    render_conditions,
)
from ottla_operator.resources.common import Condition
from ottla_operator.resources.crds import KINDS, openapi_schema

REASONS = st.sampled_from(["Rolling", "Waiting", "Refused"])
READINESS = st.one_of(
    st.builds(Ready, st.text(max_size=9)),
    st.builds(Reconciling, REASONS, st.text(max_size=9)),
    st.builds(Stalled, REASONS, st.text(max_size=9)),
)
EXTRA_CONDITIONS = st.lists(
    st.builds(ExtraCondition, st.just("Serving"), st.booleans(), REASONS, st.text(max_size=9)), max_size=1
)
KSTATUS = {Ready: "Current", Reconciling: "InProgress", Stalled: "Failed"}


@given(st.lists(st.tuples(READINESS, EXTRA_CONDITIONS, st.integers(0, 2)), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_kstatus_is_correct_after_each_step(history: list[tuple[Readiness, list[ExtraCondition], int]]) -> None:
    before: list[dict[str, Any]] = []
    generation = 1
    for moment, (readiness, extra, edits) in enumerate(history):
        generation += edits
        if edits and before:  # the spec was changed and not reconciled yet
            assert (
                kstatus(
                    {
                        "metadata": {"generation": generation},
                        "status": {"observedGeneration": generation - edits, "conditions": before},
                    }
                )
                == "InProgress"
            )
        now = f"2026-01-01T00:00:{moment:02}Z"
        found = render_conditions(Conditions(readiness, generation, extra), before, now)
        by_type = {it["type"]: it for it in found}
        resource = {
            "metadata": {"generation": generation},
            "status": {"observedGeneration": generation, "conditions": found},
        }
        assert kstatus(resource) == KSTATUS[type(readiness)]
        assert {"Ready", "Reconciling", "Stalled"} <= by_type.keys()
        assert sum(by_type[it]["status"] == "True" for it in ("Ready", "Reconciling", "Stalled")) == 1
        assert {it["observedGeneration"] for it in found} == {generation}
        for it in found:
            Condition.parse(it)
            previous = next((old for old in before if old["type"] == it["type"]), None)
            is_same = previous is not None and previous["status"] == it["status"]
            assert it["lastTransitionTime"] == (previous["lastTransitionTime"] if previous and is_same else now)
        assert render_conditions(Conditions(readiness, generation, extra), found, "later") == found
        before = found


def test_resource_without_a_status_is_in_progress() -> None:
    """The API server returns the default of the schema until a status is written."""
    for kind in KINDS:
        default = openapi_schema(kind)["properties"]["status"]["default"]
        assert kstatus({"metadata": {"generation": 1}, "status": default}) == "InProgress"
        (ready,) = default["conditions"]
        Condition.parse(ready)
        assert (ready["type"], ready["status"]) == ("Ready", "Unknown")


def test_length_of_messages_is_bounded() -> None:
    (ready, *_) = render_conditions(Conditions(Stalled("Long", "x" * 100_000), 1), (), "now")
    assert len(ready["message"]) == 4096


def test_an_unready_resource_is_not_described_by_the_message_of_its_former_readiness() -> None:
    ready = {"type": "Ready", "status": "True", "message": "topic t has 3 partitions."}
    creating = {"type": "Ready", "status": "False", "message": "creating topic t"}
    metadata = {"generation": 2}

    def described(metadata: dict[str, Any], *conditions: dict[str, str]) -> str:
        status = {"observedGeneration": 1, "conditions": list(conditions)}
        return describe_unready({"metadata": metadata, "status": status})

    assert described(metadata, ready) == "its last change is not reconciled yet"
    assert described(metadata | {"deletionTimestamp": "2026-01-01T00:00:00Z"}, ready) == "it is being deleted"
    assert described(metadata, creating) == "creating topic t"
    assert describe_unready({"metadata": metadata}) == "it is not reconciled yet"
