"""Settings of groups: planned changes, which resource owns a group, and conditions."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.conditions import Ready, Reconciling, Stalled
from ottla_operator.plan.groups import (
    AlterGroupConfig,
    GroupResource,
    evaluate_group,
    find_obstacle,
    group_owners,
    plan_group_change,
)
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.resources.group import Group, stored_group_name
from ottla_operator.resources.model import Json
from tests.unit.operator import samples

NAMES = st.sampled_from(["share.auto.offset.reset", "share.session.timeout.ms", "consumer.session.timeout.ms"])
VALUES = st.sampled_from(["earliest", "50000", "60000"])
CONFIGS = st.dictionaries(NAMES, VALUES | st.sampled_from([50000, True]))


def group(**spec: Any) -> Group:
    return Group.parse(samples.group(**spec))


@given(desired=CONFIGS, observed=st.dictionaries(NAMES, VALUES))
def test_planning_again_after_the_change_yields_nothing(desired: dict[str, Json], observed: dict[str, str]) -> None:
    wanted = group(config=desired)
    change = plan_group_change(wanted, observed)
    if change is not None:
        observed = {key: value for key, value in observed.items() if key not in change.to_unset} | dict(change.to_set)
    assert plan_group_change(wanted, observed) is None
    assert observed == wanted.config


def test_what_the_spec_does_not_have_is_reset() -> None:
    observed = {"share.auto.offset.reset": "latest", "share.session.timeout.ms": "50000"}
    change = plan_group_change(group(config={"share.auto.offset.reset": "earliest"}), observed)
    assert change == AlterGroupConfig("work", {"share.auto.offset.reset": "earliest"}, ("share.session.timeout.ms",))
    assert str(change) == "group work: share.auto.offset.reset=earliest, share.session.timeout.ms reset to default"


def test_the_group_has_the_name_of_the_spec_and_its_tenant() -> None:
    assert stored_group_name(samples.group("work")) == group().group_name == "work"
    assert group(groupName="Workers of jobs").group_name == "Workers of jobs"
    assert group(groupName="w", tenant="acme").group_name == "acme.w"


def stored(name: str, created: str, **spec: Any) -> GroupResource:
    body = samples.group(name, **spec)
    body["metadata"] |= {"namespace": "events", "creationTimestamp": created}
    return StoredResource.parse(Group, body)


def test_the_oldest_resource_owns_the_group_and_others_are_stalled() -> None:
    older, younger = stored("a", "2026-01-01", groupName="work"), stored("b", "2026-01-02", groupName="work")
    invalid = stored("c", "2025-01-01", groupName="work", config=1)
    owners = group_owners([younger, older, invalid])
    assert find_obstacle(older, owners) is None
    conflict = Stalled("NameConflict", "group work belongs to the older Group a")
    assert find_obstacle(younger, owners) == conflict
    obstacle = find_obstacle(invalid, owners)
    assert obstacle is not None and obstacle.reason == "InvalidSpec"


def test_a_group_is_ready_when_brokers_have_its_settings() -> None:
    wanted = group(config={"share.auto.offset.reset": "earliest"})
    assert evaluate_group(wanted, None) == Ready("group work has 1 setting of its own.")
    change = plan_group_change(wanted, {})
    assert evaluate_group(wanted, change) == Reconciling("ChangingGroup", "changing the settings of group work")
