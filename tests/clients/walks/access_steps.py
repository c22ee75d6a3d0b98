"""Steps of several users, and steps that create and delete their access rules."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ottla_broker.security.authorizer import OPERATIONS, Operation, ResourceType
from tests.clients.access_probes import SINCE, Names, Probe, cluster_probes, config_probes, describe_probes
from tests.clients.walks.step_generator import GROUPS, TOPICS, StepGenerator, StepKind
from tests.clients.walks.steps import WAIT, Reference, Step

USERS: Final = ("u0", "u1", "u2")
FIRST_RULES: Final = 4  # number of steps before a walk; each creates up to four rules
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DENY, ALLOW = 2, 3
CLUSTER_NAME: Final = "kafka-cluster"
KINDS_OF_RESOURCES: Final = {
    ResourceType.topic: 12,
    ResourceType.group: 5,
    ResourceType.cluster: 4,
    ResourceType.transactional_id: 0.3,
}
NOT_PROBED: Final = frozenset(
    {
        "describe_quorum",
        "describe_acls",
        "list_config_resources",
        "create_acls",
        "delete_acls",
        "create_delegation_token",
    }
)
"""APIs that walks do not send, whose responses depend on other walks, or that have steps of their
own.
"""


def first_rules(generator: StepGenerator) -> list[Step]:
    return [create_acls(generator) for _ in range(FIRST_RULES)]


def by_some_user(generator: StepGenerator, step: Step) -> Step:
    """The step, sent by a random user. With some probability the step remains the super user's, so
    that topics and rules exist. The probability is larger for steps that create topics or change
    rules.
    """
    if step.api == WAIT:
        return step
    share = 0.8 if step.api in ("create_acls", "delete_acls", "create_topics") else 0.15
    return step if generator.chance(share) else replace(step, user=generator.choose(*USERS))


def create_acls(generator: StepGenerator) -> Step:
    creations = [a_rule(generator) for _ in range(generator.choose(1, 2, 3, 4))]
    return generator.step("create_acls", creations=creations)


def a_rule(generator: StepGenerator) -> dict[str, Any]:
    [kind] = generator.random.choices(list(KINDS_OF_RESOURCES), list(KINDS_OF_RESOURCES.values()))
    name, pattern = a_pattern(generator, kind)
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:{generator.choose(*USERS, *USERS, '*')}",
        "host": generator.random.choices(("*", "127.0.0.1", "10.0.0.9"), (8, 2, 1))[0],
        "operation": int(generator.choose(Operation.all, *OPERATIONS[kind])),
        "permission_type": generator.random.choices((ALLOW, DENY), (6, 1))[0],
    }


def a_pattern(generator: StepGenerator, kind: ResourceType) -> tuple[Any, int]:
    """Name and pattern type."""
    if kind is ResourceType.cluster:
        return CLUSTER_NAME, LITERAL
    names = GROUPS if kind is ResourceType.group else TOPICS
    if generator.chance(0.15):
        return "*", LITERAL
    if generator.chance(0.4):
        return Reference("name", (generator.choose("", names[0][0], names[1]),)), PREFIXED
    return Reference("name", (generator.choose(*names),)), LITERAL


def delete_acls(generator: StepGenerator) -> Step:
    return generator.step("delete_acls", filters=[a_filter(generator) for _ in range(generator.choose(1, 1, 2))])


def describe_acls(generator: StepGenerator) -> Step:
    return generator.step("describe_acls", **a_filter(generator))


def a_filter(generator: StepGenerator) -> dict[str, Any]:
    """A filter, which names a resource or not, and a principal or not."""
    rule = a_rule(generator)
    named = generator.chance(0.5)
    pattern = generator.choose(MATCH, ANY, rule["resource_pattern_type"]) if named else ANY
    return {
        "resource_type_filter": rule["resource_type"] if named else ANY,
        "resource_name_filter": rule["resource_name"] if named else None,
        "pattern_type_filter": pattern,
        "principal_filter": None if generator.chance(0.4) else rule["principal"],
        "host_filter": None,
        "operation": rule["operation"] if generator.chance(0.3) else ANY,
        "permission_type": generator.choose(ANY, ANY, ALLOW, DENY),
    }


def probe(probes: Callable[[Names], Iterator[Probe]], generator: StepGenerator) -> Step:
    """A request with names of the walk's topics and groups."""
    topic, absent, group = generator.topic(), generator.choose(*TOPICS), generator.group()
    name = partial(Reference, "name")
    names = Names("u9", name((topic,)), name((absent,)), name((group,)), Reference("id", (topic,)))
    allowed = [one for one in probes(names) if one[0] not in NOT_PROBED]
    api, case, fields = generator.choose(*allowed)
    return generator.step(api, low=SINCE.get((api, case), 0), **fields)


def find_coordinator(generator: StepGenerator) -> Step:
    group = Reference("name", (generator.group(),))
    return generator.step("find_coordinator", key=group, key_type=0, coordinator_keys=[group])


RULE_KINDS: Final[Mapping[StepKind, float]] = {
    create_acls: 3,
    delete_acls: 1,
    describe_acls: 1,
}
KINDS: Final[Mapping[StepKind, float]] = {
    partial(probe, describe_probes): 3,
    partial(probe, config_probes): 2,
    partial(probe, cluster_probes): 2,
    find_coordinator: 1,
}
