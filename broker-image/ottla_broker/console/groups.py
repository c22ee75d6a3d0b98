"""The pages of groups: the list, one group with its members and lag, and the groups that read a
topic.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests, merge_failures
from ottla_broker.console.group_description import (
    ListedGroup,
    PartitionLag,
    find_owners,
    largest_lag_s,
    total_lag,
)
from ottla_broker.console.group_lag import GroupLags
from ottla_broker.console.group_requests import GroupRequests
from ottla_broker.console.paging import cut_page
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.topic_list import matches
from ottla_broker.console.topics import TopicPages, may_describe_topic
from ottla_broker.security.authorizer import Operation, Resource

MAX_PARTITIONS: Final = 1000
"""Partitions of a group that are shown: those with the largest lag."""


@dataclass(frozen=True, slots=True)
class TopicReader:
    """A group that has committed offsets of a topic."""

    group: ListedGroup
    lag: int


class GroupPages:
    """Users see the groups and topics that they may describe."""

    def __init__(self, broker: Broker, requests: ClusterRequests, topics: TopicPages, tasks: BackgroundTasks) -> None:
        self._requests = requests
        self._groups = GroupRequests(broker, requests)
        self._lags = GroupLags(broker, requests, self._groups, tasks)
        self._topics = topics

    async def show_list(self, page: PageRequest) -> web.Response:
        groups, failures = await self._groups.list_groups()
        search = page.text("search")
        words = search.lower().split()
        found = [one for one in groups if matches(one.name, words) and may_describe_group(page, one.name)]
        shown = cut_page(found, page.integer("page", 1, at_least=1))
        template = "group_rows.html" if page.wants_fragment else "groups.html"
        return page.render(template, groups=shown, search=search, failures=failures)

    async def show_group(self, page: PageRequest) -> web.Response:
        name = page.http.query.get("id", "")  # not in the path: it may have any characters
        group = await find_group(self._groups, page, name)
        description, committed = await asyncio.gather(
            self._groups.describe(group), self._groups.find_committed_offsets(group)
        )
        owners = find_owners(description.members)
        partitions = sorted(
            (topic, index) for topic, index in committed.keys() | owners.keys() if may_describe_topic(page, topic)
        )
        lags = await self._lags.find_lags(committed, owners, partitions)
        if committed:
            self._lags.open(group)
        return page.render(
            "group.html",
            group=group,
            description=description,
            lags=sorted(lags, key=lambda it: -it.lag)[:MAX_PARTITIONS] if len(lags) > MAX_PARTITIONS else lags,
            lag_count=len(lags),
            lag=total_lag(lags),
            lag_s=largest_lag_s(lags),
            has_history=bool(committed),
            uncommitted=sum(one.committed < 0 for one in lags),
        )

    async def lag_history(self, page: PageRequest) -> web.Response:
        """JSON for the plot of a group's page. Empty for a group whose page was not opened, or that
        the user may not describe.
        """
        name = page.http.query.get("id", "")
        if not may_describe_group(page, name):
            return web.json_response({"at_s": [], "lag": []})
        return web.json_response(self._lags.columns(name, lambda topic: may_describe_topic(page, topic)))

    async def show_readers(self, page: PageRequest) -> web.Response:
        """The groups that have committed offsets of a topic, with their lag in it."""
        topic = self._topics.find_topic(page)
        groups, failures = await self._groups.list_groups()
        visible = [one for one in groups if may_describe_group(page, one.name)]
        offsets, more = await self._groups.find_groups_of_topic(topic.name, sorted(topic.partitions), visible)
        ends = await self._requests.find_end_offsets((topic.name, index) for index in topic.partitions)
        readers = [
            TopicReader(
                one, total_lag(PartitionLag(*at, offset, ends.get(at, -1)) for at, offset in offsets[one.name].items())
            )
            for one in visible
            if one.name in offsets
        ]
        return page.render("readers.html", readers=readers, failures=merge_failures(failures, more))


async def find_group(groups: GroupRequests, page: PageRequest, name: str) -> ListedGroup:
    """Raises PageError: a group that the user may not describe does not exist for them."""
    found, failures = await groups.find(name) if may_describe_group(page, name) else (None, ())
    if found is not None:
        return found
    reason = f"There is no group {name!r} that {page.user.principal} may describe."
    raise PageError(404, " ".join([reason, *failures]))


def may_describe_group(page: PageRequest, name: str) -> bool:
    return page.user.may(Operation.describe, Resource.group(name))
