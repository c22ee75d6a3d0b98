"""Topics as their resources wish them: see, let the plan decide, do."""

from collections.abc import Sequence

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.brokers import cluster, placing, reassignments, topics
from ottla_operator.brokers.link import Link
from ottla_operator.figures import counted
from ottla_operator.plan.reassign import Impossible, resize
from ottla_operator.plan.topics import Change, Configure, Create, Delete, Grow, Replicate, Seen, Stuck
from ottla_operator.resources.topic import Topic


async def observe(link: Link, wanted: Sequence[Topic]) -> dict[str, Seen]:
    """Those of the wished topics that there are, by their names on the brokers. Settings, and what is moving, are asked for only where they are
    managed."""
    found = await topics.describe(link, {it.topic_name for it in wanted})
    managed = [it.topic_name for it in wanted if it.spec.config is not None and it.topic_name in found]
    config = await topics.own_settings(link, managed)
    moving: set[str] = set()
    brokers = 0
    if not all(_has_copies(it, found.get(it.topic_name)) for it in wanted):
        moving = {topic for topic, _ in await reassignments.ongoing(link)}
        brokers = len((await cluster.describe(link)).brokers)
    return {
        name: Seen(
            name,
            len(it.partitions),
            it.replicas,
            config.get(name, {}),
            str(it.id) if it.id else "",
            max((len(partition.replicas) for partition in it.partitions), default=0),
            name in moving,
            brokers,
        )
        for name, it in found.items()
    }


def _has_copies(wanted: Topic, found: topics.Topic | None) -> bool:
    """Whether a topic has the copies that are wished, if any are: brokers count those that are still being made among the replicas."""
    if wanted.spec.replicas is None:
        return True
    return found is not None and all(len(it.isr) == len(it.replicas) == wanted.spec.replicas for it in found.partitions)


async def apply(link: Link, change: Change) -> None:
    """Does one change. KafkaError when the brokers refuse it. What is stuck is left to people."""
    match change:
        case Create():
            await topics.create(link, change.name, change.partitions, change.replicas, change.config)
        case Grow():
            await topics.grow(link, change.name, change.partitions)
        case Replicate():
            await _replicate(link, change)
        case Configure():
            await topics.configure(link, change.name, change.put, change.drop)
        case Delete():
            await topics.delete(link, change.name)
        case Stuck():
            pass


async def _replicate(link: Link, change: Replicate) -> None:
    """Returns when the brokers have taken it down; they copy meanwhile."""
    seen = await placing.observe(link)
    try:
        moves = resize(seen.partitions, seen.brokers, {change.name}, change.replicas)
    except Impossible as error:  # a broker has fallen since we looked
        raise KafkaError(ErrorCode.invalid_replication_factor, str(error)) from error
    await reassignments.reassign(link, {(it.topic, it.partition): it.after for it in moves})


def spoken(change: Change) -> str:
    """What a change does, in words."""
    match change:
        case Create():
            return f"topic {change.name} made"
        case Grow():
            return f"topic {change.name} grown to {change.partitions} partitions"
        case Replicate():
            return f"topic {change.name}: to {counted(change.replicas, 'replica')}"
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
