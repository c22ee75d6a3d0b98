"""What a walk is mostly about: how often each kind of step is drawn."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.clients.walks import group_steps as groups
from tests.clients.walks import record_steps as records
from tests.clients.walks import topic_steps as topics
from tests.clients.walks.drawing import TOPICS, Draw
from tests.clients.walks.steps import Step

Kind = Callable[[Draw], Step | list[Step]]
TOPIC_KINDS: Final[Mapping[Kind, float]] = {
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
RECORD_KINDS: Final[Mapping[Kind, float]] = {
    records.produce: 12,
    records.fetch: 12,
    records.list_offsets: 4,
    records.delete_records: 2,
    records.offset_for_leader_epoch: 1,
    records.describe_producers: 2,
    records.init_producer_id: 0.3,
}
MEMBER_KINDS: Final[Mapping[Kind, float]] = {
    groups.rally: 3,
    groups.join_group: 10,
    groups.sync_group: 9,
    groups.heartbeat: 5,
    groups.leave_group: 3,
    groups.describe_groups: 4,
    groups.list_groups: 1,
    groups.delete_groups: 1,
}
COMMIT_KINDS: Final[Mapping[Kind, float]] = {groups.offset_commit: 6, groups.offset_fetch: 5, groups.offset_delete: 1}


def mixed(*parts: tuple[Mapping[Kind, float], float]) -> dict[Kind, float]:
    """Each part with its share of the steps."""
    return {kind: share * weight / sum(part.values()) for part, share in parts for kind, weight in part.items()}


THEMES: Final[Mapping[str, Mapping[Kind, float]]] = {
    "records": mixed((RECORD_KINDS, 8), (TOPIC_KINDS, 1)),
    "topics": mixed((TOPIC_KINDS, 5), (RECORD_KINDS, 4), (COMMIT_KINDS, 1)),
    "members": mixed((MEMBER_KINDS, 9), (COMMIT_KINDS, 1.5)),
    "commits": mixed((COMMIT_KINDS, 5), (MEMBER_KINDS, 4), (TOPIC_KINDS, 1)),
    "all": mixed((RECORD_KINDS, 3), (MEMBER_KINDS, 3), (COMMIT_KINDS, 2), (TOPIC_KINDS, 2)),
}


# Walked only when asked for: it takes seconds for each time that members expire.
EXPIRY: Final = "expiry"
EXPIRING: Final = mixed((MEMBER_KINDS, 10), (COMMIT_KINDS, 1), ({groups.expiry: 1}, 1))


def drawn(seed: int, count: int, highest: dict[str, int], theme: str | None = None) -> list[Step]:
    """A walk of about so many steps, of a theme that the seed chooses; it begins with a topic or two."""
    draw = Draw(seed, highest, groups.SHORT_MS if theme == EXPIRY else groups.LONG_MS)
    chosen = theme or draw.one(*THEMES)
    kinds = EXPIRING if theme == EXPIRY else THEMES[chosen]
    first = [topics.create_topics(draw, topic) for topic in TOPICS[: draw.one(1, 2, 3)]]
    steps: list[Step] = [*first]
    while len(steps) < count:
        [kind] = draw.chance.choices(list(kinds), list(kinds.values()))
        drawn_now = kind(draw)
        steps += drawn_now if isinstance(drawn_now, list) else [drawn_now]
    return steps
