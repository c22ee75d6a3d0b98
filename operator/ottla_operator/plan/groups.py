"""Plans the change that brings a group's settings to the spec of its Group resource, and evaluates
the resource's conditions. Pure.

Invariant: after the change is applied, planning again yields nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ottla_operator.formatting import format_count
from ottla_operator.plan.conditions import Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.owners import oldest_owners
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.plan.topics import is_same_value
from ottla_operator.resources.group import Group


@dataclass(frozen=True, slots=True)
class AlterGroupConfig:
    """`to_unset`: settings for which the brokers' defaults apply again."""

    event: ClassVar[str] = "GroupConfigChanged"

    name: str
    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]

    def __str__(self) -> str:
        settings = [
            *(f"{key}={value}" for key, value in self.to_set.items()),
            *(f"{key} reset to default" for key in self.to_unset),
        ]
        return f"group {self.name}: {', '.join(settings)}"


def plan_group_change(group: Group, observed: Mapping[str, str]) -> AlterGroupConfig | None:
    """None if no change is needed. `observed`: the values that are set on the group itself."""
    desired = group.config
    to_set = {key: value for key, value in desired.items() if not is_same_value(value, observed.get(key))}
    to_unset = tuple(sorted(set(observed) - set(desired)))
    return AlterGroupConfig(group.group_name, to_set, to_unset) if to_set or to_unset else None


GroupResource: TypeAlias = StoredResource[Group]


def group_owners(resources: Iterable[GroupResource]) -> dict[str, GroupResource]:
    """Group id → the resource that owns it, the oldest of several. Invalid resources own none."""
    return oldest_owners(resources, lambda it: it.parsed.group_name if it.parsed else None)


def find_obstacle(resource: GroupResource, owners: Mapping[str, GroupResource]) -> Stalled | None:
    """The reason why the resource's settings cannot be applied; None if they can."""
    name = resource.parsed.group_name if resource.parsed else ""
    return resource.find_conflict(owners.get(name), f"group {name}")


def evaluate_group(group: Group, remaining: AlterGroupConfig | None) -> Readiness:
    """`remaining`: the planned change after the last one was applied."""
    if remaining is not None:
        return Reconciling("ChangingGroup", f"changing the settings of group {group.group_name}")
    return Ready(f"group {group.group_name} has {format_count(len(group.config), 'setting')} of its own.")
