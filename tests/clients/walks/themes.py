"""Themes of walks: how often each kind of step is generated."""

from collections.abc import Mapping
from typing import Final

from tests.clients.walks import access_steps as access
from tests.clients.walks import consumer_steps as consumers
from tests.clients.walks import group_steps as groups
from tests.clients.walks import limit_steps as limits
from tests.clients.walks import record_steps as records
from tests.clients.walks import share_steps as shares
from tests.clients.walks import streams_steps as streams
from tests.clients.walks import topic_steps as topics
from tests.clients.walks import transaction_steps as transactions
from tests.clients.walks.step_generator import TOPICS, StepGenerator, StepKind
from tests.clients.walks.steps import Step

TOPIC_KINDS: Final[Mapping[StepKind, float]] = {
    topics.create_topics: 3,
    topics.create_partitions: 1,
    topics.delete_topics: 2,
    topics.incremental_alter_configs: 2,
    topics.alter_configs: 1,
    topics.describe_configs: 2,
    topics.metadata: 2,
    topics.describe_topic_partitions: 1,
    topics.describe_log_dirs: 2,
}
RECORD_KINDS: Final[Mapping[StepKind, float]] = {
    records.produce: 12,
    records.fetch: 12,
    records.list_offsets: 4,
    records.delete_records: 2,
    records.offset_for_leader_epoch: 1,
    records.describe_producers: 2,
    records.init_producer_id: 0.3,
}
LIMIT_KINDS: Final[Mapping[StepKind, float]] = {limits.fill: 1, limits.fetch: 5}
MEMBER_KINDS: Final[Mapping[StepKind, float]] = {
    groups.rebalance_all: 3,
    groups.join_group: 10,
    groups.sync_group: 9,
    groups.heartbeat: 5,
    groups.leave_group: 3,
    groups.describe_groups: 4,
    groups.list_groups: 1,
    groups.delete_groups: 1,
}
COMMIT_KINDS: Final[Mapping[StepKind, float]] = {
    groups.offset_commit: 6,
    groups.offset_fetch: 5,
    groups.offset_delete: 1,
}


def mix(*parts: tuple[Mapping[StepKind, float], float]) -> dict[StepKind, float]:
    """Combines parts; each has its share of the steps."""
    return {kind: share * weight / sum(part.values()) for part, share in parts for kind, weight in part.items()}


THEMES: Final[Mapping[str, Mapping[StepKind, float]]] = {
    "records": mix((RECORD_KINDS, 8), (TOPIC_KINDS, 1)),
    "topics": mix((TOPIC_KINDS, 5), (RECORD_KINDS, 4), (COMMIT_KINDS, 1)),
    "members": mix((MEMBER_KINDS, 9), (COMMIT_KINDS, 1.5)),
    "commits": mix((COMMIT_KINDS, 5), (MEMBER_KINDS, 4), (TOPIC_KINDS, 1)),
    "limits": LIMIT_KINDS,
    "all": mix((RECORD_KINDS, 3), (MEMBER_KINDS, 3), (COMMIT_KINDS, 2), (TOPIC_KINDS, 2)),
}


# Only on request: each expiry of members takes seconds.
EXPIRY: Final = "expiry"
EXPIRING: Final = mix((MEMBER_KINDS, 10), (COMMIT_KINDS, 1), ({groups.expiry: 1}, 1))


# Several users with access rules.
ACCESS: Final = "access"
ACCESS_KINDS: Final = mix(
    (RECORD_KINDS, 4),
    (TOPIC_KINDS, 3),
    (COMMIT_KINDS, 2),
    (MEMBER_KINDS, 1.5),
    (access.RULE_KINDS, 2),
    (access.KINDS, 4),
)

# Transactional producers.
TRANSACTIONS: Final = "transactions"

# Groups of the consumer protocol, compared with Apache Kafka 4.2: 4.1 fences members that join
# again, and the first epoch of 4.3 is 2.
CONSUMERS: Final = "consumers"

# Kafka Streams applications, which need Apache Kafka 4.2 or newer.
STREAMS: Final = "streams"

# Share groups, which need Apache Kafka 4.2 or newer, too.
SHARES: Final = "shares"

ON_REQUEST: Final = {
    EXPIRY: EXPIRING,
    ACCESS: ACCESS_KINDS,
    TRANSACTIONS: transactions.KINDS,
    CONSUMERS: consumers.KINDS,
    STREAMS: streams.KINDS,
    SHARES: shares.KINDS,
}


CREATE_INPUTS: Final = {
    CONSUMERS: consumers.create_inputs,
    STREAMS: streams.create_inputs,
    SHARES: shares.create_inputs,
}


def generate_steps(seed: int, count: int, highest: dict[str, int], theme: str | None) -> list[Step]:
    """The steps of a walk, which begins with the creation of topics. `theme` None: the seed chooses
    one.
    """
    generator = StepGenerator(seed, highest, groups.SHORT_MS if theme == EXPIRY else groups.LONG_MS)
    chosen = theme or generator.choose(*THEMES)
    kinds = ON_REQUEST.get(chosen) or THEMES[chosen]
    create_topics = transactions.create_topics if theme == TRANSACTIONS else topics.create_topics
    steps: list[Step]
    if theme in CREATE_INPUTS:
        steps = CREATE_INPUTS[theme](generator)
    else:
        steps = [create_topics(generator, topic) for topic in TOPICS[: generator.choose(1, 2, 3)]]
    while len(steps) < count:
        [kind] = generator.random.choices(list(kinds), list(kinds.values()))
        generated = kind(generator)
        steps += generated if isinstance(generated, list) else [generated]
    if theme == ACCESS:
        return [*access.first_rules(generator), *(access.by_some_user(generator, step) for step in steps)]
    return steps
