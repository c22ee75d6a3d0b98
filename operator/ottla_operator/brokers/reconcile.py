"""Topics as their resources wish them: see, let the plan decide, do."""

from collections.abc import Sequence

from ottla_operator.brokers import topics
from ottla_operator.brokers.link import Link
from ottla_operator.plan.topics import Change, Configure, Create, Delete, Grow, Seen, Stuck
from ottla_operator.resources.topic import Topic


async def observe(link: Link, wanted: Sequence[Topic]) -> dict[str, Seen]:
    """Those of the wished topics that there are, by their names on the brokers. Settings are asked for only where they are managed."""
    found = await topics.describe(link, {it.topic_name for it in wanted})
    managed = [it.topic_name for it in wanted if it.spec.config is not None and it.topic_name in found]
    config = await topics.own_settings(link, managed)
    return {
        name: Seen(name, len(it.partitions), it.replicas, config.get(name, {}), str(it.id) if it.id else "")
        for name, it in found.items()
    }


async def apply(link: Link, change: Change) -> None:
    """Does one change. KafkaError when the brokers refuse it. What is stuck is left to people."""
    match change:
        case Create():
            await topics.create(link, change.name, change.partitions, change.replicas, change.config)
        case Grow():
            await topics.grow(link, change.name, change.partitions)
        case Configure():
            await topics.configure(link, change.name, change.put, change.drop)
        case Delete():
            await topics.delete(link, change.name)
        case Stuck():
            pass


def spoken(change: Change) -> str:
    """What a change does, in words."""
    match change:
        case Create():
            return f"topic {change.name} made"
        case Grow():
            return f"topic {change.name} grown to {change.partitions} partitions"
        case Configure():
            said = [
                *(f"{key}={value}" for key, value in change.put.items()),
                *(f"{key} back to default" for key in change.drop),
            ]
            return f"topic {change.name}: {', '.join(said)}"
        case Delete():
            return f"topic {change.name} deleted"
        case Stuck():
            return f"topic {change.name}: {change.why}"
