"""The pages of a group's offset reset: a dry run with files that do and undo it, and the reset
itself.

The reset commits the offsets that the dry run has shown. It commits nothing if one of the offsets
that the group had then has changed since.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, cast

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.group_description import SHARE, ListedGroup
from ottla_broker.console.group_requests import GroupRequests, OffsetsByPartition
from ottla_broker.console.groups import find_group
from ottla_broker.console.message_query import parse_time_ms
from ottla_broker.console.offset_reset import (
    RESET_KINDS,
    OffsetChange,
    PartitionReset,
    ResetKind,
    ResetTarget,
    choose_offset,
    find_conflicts,
    parse_changes,
    plan_changes,
    write_changes,
    write_offsets,
)
from ottla_broker.console.requests import MAX_INT64, PageError, PageRequest
from ottla_broker.console.topics import may_describe_topic
from ottla_broker.console.user_requests import read_write_form, record_outcome
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_broker.wire.offset_commit import build_offset_commit

MAX_SHOWN: Final = 1000
"""Partitions that are listed; the forms and files have all."""
FILES: Final = ("undo", "reset")
MEMBER_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.non_empty_group,
        ErrorCode.stale_member_epoch,
    }
)
"""Error codes of a commit by a client that is no member, when the group has members."""


class GroupResetPages:
    def __init__(self, broker: Broker, requests: ClusterRequests) -> None:
        self._requests = requests
        self._groups = GroupRequests(broker, requests)

    async def show(self, page: PageRequest) -> web.Response:
        """Shows a dry run if the query names a target (`to`). Writes nothing."""
        group, committed = await self._find(page, page.http.query.get("id", ""))
        target = parse_target(page) if page.text("to") else None
        resets = [] if target is None else await self._plan(select_topic(committed, page.text("topic")), target)
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
            changes=write_changes(plan_changes(resets)),
        )

    async def reset(self, page: PageRequest) -> web.Response:
        """Commits the changes of a form, which a dry run has shown. Users need READ on the group
        and the topics, as for a commit by Kafka's clients.
        """
        form = await read_write_form(page)
        group, committed = await self._find(page, form.get("id", ""))
        changes = read_changes(form)
        if conflicts := find_conflicts(changes, committed):
            change, now = conflicts[0]
            raise PageError(
                409,
                f"Nothing is changed: offsets of {group.name} have changed since the dry run. That of "
                f"{change.topic}-{change.partition} was {change.before}, and is {'none' if now is None else now} now.",
            )
        await self._commit(page, group, changes)
        shown = [PartitionReset(one.topic, one.partition, one.before, one.after, -1) for one in changes[:MAX_SHOWN]]
        return page.render(
            "group_reset_done.html",
            group=group,
            count=len(changes),
            resets=shown,
            undo=write_changes(one.undo for one in changes),
        )

    async def download_undo(self, page: PageRequest) -> web.Response:
        """The `after` offsets of a form's changes, as a file for Kafka's tool. The form is that of
        the page after a reset; its changes undo the reset.
        """
        changes = read_changes(await read_write_form(page))
        return build_file_response((one.topic, one.partition, one.after) for one in changes)

    async def _commit(self, page: PageRequest, group: ListedGroup, changes: list[OffsetChange]) -> None:
        """Raises PageError, GROUP_ and TOPIC_AUTHORIZATION_FAILED."""
        page.user.check(Operation.read, Resource.group(group.name), ApiKey.OFFSET_COMMIT)
        for topic in sorted({one.topic for one in changes}):
            page.user.check(Operation.read, Resource.topic(topic), ApiKey.OFFSET_COMMIT)
        commits = {(one.topic, one.partition): (one.after, "") for one in changes}
        client = self._requests.client
        response = await client.send_to_coordinator(group.name, build_offset_commit(group.name, commits))
        errors = {
            one.error_code: f"{topic.name}-{one.partition_index}"
            for topic in response.topics
            for one in topic.partitions
            if one.error_code is not ErrorCode.none
        }
        code = next(iter(errors), ErrorCode.none)
        record_outcome(page.user, "ALTER_OFFSETS", "GROUP", group.name, code, ApiKey.OFFSET_COMMIT)
        if code in MEMBER_ERRORS:
            raise PageError(409, f"Nothing is changed: {group.name} has members. Stop them first.")
        if errors:
            raise PageError(502, f"Not all offsets are changed: {errors[code]}: {code.name.upper()}.")

    async def download(self, page: PageRequest) -> web.Response:
        """The file of the dry run (`file=reset`), or of the offsets before it (`file=undo`)."""
        file = page.text("file")
        if file not in FILES:
            raise PageError(400, f"file={file!r}: expected {', '.join(FILES)}")
        _, committed = await self._find(page, page.http.query.get("id", ""))
        resets = await self._plan(select_topic(committed, page.text("topic")), parse_target(page))
        offsets = ((one.topic, one.partition, one.committed if file == "undo" else one.target) for one in resets)
        return build_file_response(offsets, file)

    async def _find(self, page: PageRequest, name: str) -> tuple[ListedGroup, OffsetsByPartition]:
        """The group, and its committed offsets of topics that the user may describe. Raises
        PageError, KafkaError, OSError.
        """
        group = await find_group(self._groups, page, name)
        if group.type == SHARE:
            raise PageError(400, f"{group.name} is a share group, which has no committed offsets.")
        committed = await self._groups.find_committed_offsets(group)
        return group, {one: offset for one, offset in committed.items() if may_describe_topic(page, one[0])}

    async def _plan(self, committed: OffsetsByPartition, target: ResetTarget) -> list[PartitionReset]:
        partitions = sorted(committed)
        at = target.at if target.kind == "time" else LATEST_TIMESTAMP
        starts, ends, times = await asyncio.gather(
            *(self._requests.find_offsets_at(partitions, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, at))
        )
        return [
            PartitionReset(
                *one,
                committed[one],
                choose_offset(target, committed[one], starts.get(one, -1), ends.get(one, -1), times.get(one)),
                ends.get(one, -1),
            )
            for one in partitions
        ]


def build_file_response(offsets: Iterable[tuple[str, int, int]], name: str = "undo") -> web.Response:
    response = web.Response(text=write_offsets(offsets), content_type="text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}-offsets.csv"'
    return response


def read_changes(form: Mapping[str, str]) -> list[OffsetChange]:
    """The changes in a form's field. Raises PageError, also if there is none."""
    try:
        changes = parse_changes(form.get("changes", ""))
    except ValueError as reason:
        raise PageError(400, f"changes: {reason}") from None
    if not changes:
        raise PageError(400, "There is no offset to change.")
    return changes


def select_topic(committed: OffsetsByPartition, topic: str) -> OffsetsByPartition:
    """The offsets of one topic; of all, if `topic` is empty."""
    return {one: offset for one, offset in committed.items() if topic in ("", one[0])}


def parse_target(page: PageRequest) -> ResetTarget:
    """The target that the query names. Raises PageError."""
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
