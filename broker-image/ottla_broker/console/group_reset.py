"""The page of a group's offset reset: a dry run, with files that do and undo it."""

import asyncio
from typing import Final, cast

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.group_description import SHARE, ListedGroup
from ottla_broker.console.group_requests import CommittedOffsets, GroupRequests
from ottla_broker.console.groups import GroupPages
from ottla_broker.console.message_query import parse_time_ms
from ottla_broker.console.offset_reset import (
    RESET_KINDS,
    PartitionReset,
    ResetKind,
    ResetTarget,
    choose_offset,
    write_offsets,
)
from ottla_broker.console.requests import MAX_INT64, PageError, PageRequest
from ottla_broker.console.topics import TopicPages, may_describe
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

MAX_SHOWN: Final = 1000
FILES: Final = ("undo", "reset")


class GroupResetPages:
    def __init__(self, broker: Broker, requests: ClusterRequests, topics: TopicPages) -> None:
        self._requests = requests
        self._groups = GroupRequests(broker, requests)
        self._pages = GroupPages(broker, requests, topics)

    async def show(self, page: PageRequest) -> web.Response:
        """Offsets of topics that the user may describe. Nothing is written."""
        group, committed = await self._find(page)
        target = parse_target(page) if page.text("to") else None
        resets = [] if target is None else await self._plan(select(committed, page.text("topic")), target)
        return page.render(
            "group_reset.html",
            group=group,
            query=page.http.query,
            text=page.http.rel_url.raw_query_string,
            topics=sorted({topic for topic, _ in committed}),
            kinds=RESET_KINDS,
            target=target,
            resets=resets[:MAX_SHOWN],
            reset_count=len(resets),
        )

    async def download(self, page: PageRequest) -> web.Response:
        """The file of the dry run (`file=reset`), or of the offsets before it (`file=undo`)."""
        file = page.text("file")
        if file not in FILES:
            raise PageError(400, f"file={file!r}: expected {', '.join(FILES)}")
        _, committed = await self._find(page)
        resets = await self._plan(select(committed, page.text("topic")), parse_target(page))
        text = write_offsets(
            (one.topic, one.partition, one.committed if file == "undo" else one.target) for one in resets
        )
        response = web.Response(text=text, content_type="text/csv")
        response.headers["Content-Disposition"] = f'attachment; filename="{file}-offsets.csv"'
        return response

    async def _find(self, page: PageRequest) -> tuple[ListedGroup, CommittedOffsets]:
        group = await self._pages.find_group(page, page.http.query.get("id", ""))
        if group.type == SHARE:
            raise PageError(400, f"{group.name} is a share group, which has no committed offsets.")
        committed = await self._groups.committed_offsets(group)
        return group, {one: offset for one, offset in committed.items() if may_describe(page, one[0])}

    async def _plan(self, committed: CommittedOffsets, target: ResetTarget) -> list[PartitionReset]:
        partitions = sorted(committed)
        at = target.at if target.kind == "time" else LATEST_TIMESTAMP
        starts, ends, times = await asyncio.gather(
            *(self._requests.offsets_at(partitions, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, at))
        )
        return [
            PartitionReset(
                *one,
                committed[one],
                choose_offset(target, committed[one], starts.get(one, -1), ends.get(one, -1), times.get(one, -1)),
                ends.get(one, -1),
            )
            for one in partitions
        ]


def select(committed: CommittedOffsets, topic: str) -> CommittedOffsets:
    """`topic` empty: all."""
    return {one: offset for one, offset in committed.items() if topic in ("", one[0])}


def parse_target(page: PageRequest) -> ResetTarget:
    """Raises PageError."""
    kind, at = page.text("to"), page.text("at")
    if kind not in RESET_KINDS:
        raise PageError(400, f"to={kind!r}: expected {', '.join(RESET_KINDS)}")
    match kind:
        case "offset":
            return ResetTarget("offset", page.integer("at", 0))
        case "shift":
            return ResetTarget("shift", page.integer("at", 0, at_least=-MAX_INT64))
        case "time":
            return ResetTarget("time", parse_time_ms(at))
        case _:
            return ResetTarget(cast(ResetKind, kind))
