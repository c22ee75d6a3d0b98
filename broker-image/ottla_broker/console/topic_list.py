"""The list of topics: which of them match, and one page of them."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from ottla_broker.console.paging import ListPage, cut_page
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import NO_LEADER

TOPICS_PER_SLICE: Final = 1000
"""Topics that a slice visits before other tasks may run."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """`out_of_sync`: number of partitions with a replica that is not in sync. `offline`: number of
    partitions without a leader. `configs`: number of configs that are set for the topic.
    """

    name: str
    partitions: int
    replication_factor: int
    out_of_sync: int
    offline: int
    configs: int
    is_internal: bool
    is_mirrored: bool


async def find_topics(
    image: MetadataImage, search: str, is_visible: Callable[[str], bool], *, with_internal: bool
) -> list[str]:
    """Names of the visible topics whose names contain every word of `search`, in upper or lower
    case; in alphabetical order. `with_internal`: also internal topics. Other tasks run in between.
    """
    words, found = search.lower().split(), []
    for position, (name, topic) in enumerate(sorted(image.topics.items())):
        if position % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
            await asyncio.sleep(0)
        if (with_internal or not topic.is_internal) and matches(name, words) and is_visible(name):
            found.append(name)
    return found


def matches(name: str, words: Collection[str]) -> bool:
    """True if each word is a part of the name in lower case. `words`: in lower case."""
    lowered = name.lower()
    return all(word in lowered for word in words)


def make_page(image: MetadataImage, names: list[str], number: int) -> ListPage[TopicRow]:
    """The rows of one page, as `cut_page` chooses it. `names`: topics that match."""
    page = cut_page(names, number)
    topics = [topic for name in page.rows if (topic := image.topics.get(name)) is not None]
    return ListPage([describe_row(image, topic) for topic in topics], page.found, page.number, page.last)


def describe_row(image: MetadataImage, topic: TopicImage) -> TopicRow:
    states = topic.partitions.values()
    return TopicRow(
        topic.name,
        len(states),
        max((len(one.replicas) for one in states), default=0),
        sum(len(one.isr) < len(one.replicas) for one in states),
        sum(one.leader == NO_LEADER for one in states),
        len(image.topic_config(topic.name)),
        topic.is_internal,
        image.active_mirror(topic.id) is not None,
    )
