"""What the steps of consumer groups (KIP-848), share groups and streams groups have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.clients.walks.step_generator import StepGenerator
from tests.clients.walks.steps import Reference, Step

GROUPS: Final = ("g0", "g1")
GROUP_RESOURCE: Final = 32


def any_group(generator: StepGenerator) -> str:
    return generator.random.choices(GROUPS, (5, 1))[0]


def any_member(generator: StepGenerator, slots: Sequence[str]) -> tuple[str, str]:
    """(group, slot) of a member that has joined, usually."""
    group = any_group(generator)
    if (members := generator.joined.get(group)) and not generator.chance(0.05):
        return group, generator.random.choice(members)
    return group, generator.choose(*slots)


def add_member(generator: StepGenerator, group: str, slot: str) -> None:
    """Notes that a member joins, perhaps again."""
    if slot not in (members := generator.joined.setdefault(group, [])):
        members.append(slot)


def forget_member(generator: StepGenerator, group: str, slot: str) -> None:
    """Notes that a member leaves."""
    if slot in (members := generator.joined.get(group, [])):
        members.remove(slot)


def describe_groups(generator: StepGenerator, api: str) -> Step:
    groups = [generator.choose(*GROUPS)] if generator.chance(0.8) else generator.choose([*GROUPS], ["g2"])
    return generator.step(
        api,
        group_ids=[Reference("name", (group,)) for group in groups],
        include_authorized_operations=generator.chance(0.1),
    )


def change_config(generator: StepGenerator, *values_of_names: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
    """A change that sets or removes one of the configs, each a name with its values."""
    name, values = generator.choose(*values_of_names)
    return {"name": name, "config_operation": generator.choose(0, 0, 1), "value": generator.choose(*values)}


def alter_group(generator: StepGenerator, group: str, *configs: dict[str, Any]) -> Step:
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": Reference("name", (group,))}
    changed = [{**resource, "configs": list(configs)}]
    return generator.step("incremental_alter_configs", low=1, resources=changed, validate_only=False)


def create_inputs(generator: StepGenerator, partitions: Mapping[str, int]) -> list[Step]:
    """Steps that create topics; `partitions` has their numbers of partitions."""
    generator.created.update(partitions)
    return [
        generator.step(
            "create_topics",
            topics=[{"name": Reference("name", (name,)), "num_partitions": count, "replication_factor": 1}],
            timeout=10_000,
            validate_only=False,
        )
        for name, count in partitions.items()
    ]
