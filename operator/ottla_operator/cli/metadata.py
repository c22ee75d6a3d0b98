"""`ottla cluster metadata`: who keeps the metadata log, and what is written in it."""

import json
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import run_command
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.cli.output import emit, facts, show
from ottla_operator.kafka import metadata_log, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.metadata_log import Entry, Log

HELP = """Who keeps the metadata log, and the newest of its records.

The log says what the cluster is: every broker, topic, partition, setting and change of leader is a record of it."""

UNSAID = frozenset({"type", "incarnation", "directories"})  # in the table; JSON has them

Last = Annotated[int, typer.Option("--last", "-n", min=0, help="How many records, the newest.")]
From = Annotated[int | None, typer.Option("--from", min=0, metavar="OFFSET", help="All from this offset on, instead.")]
Kind = Annotated[str | None, typer.Option("--type", "-t", help="Only records of this type, as the table shows it.")]
Whole = Annotated[
    bool,
    typer.Option("--snapshot", help="All there is: what the newest snapshot says, and every record after it."),
]


def metadata(
    last: Last = 20,
    first: From = None,
    kind: Kind = None,
    snapshot: Whole = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    if snapshot and first is not None:
        raise typer.BadParameter("--snapshot shows everything; leave --from out")

    async def work() -> tuple[Log, list[Entry], dict[str, str]]:
        async with link_to(bootstrap, command_config) as link:
            log = await metadata_log.describe(link)
            found: deque[Entry] = deque(maxlen=None if snapshot or first is not None else last)
            async for entry in _chosen(link, log, first, snapshot):
                if kind in (None, entry.what.get("type")):
                    found.append(entry)
            names = {str(it.id): it.name for it in await topics.list_topics(link)} if output is Format.table else {}
            return log, list(found), names

    log, found, names = run_command(work())
    if output is not Format.table:
        emit({**_state(log), "records": [_row(it) for it in found]}, output)
        return
    _tell(log)
    print()
    rows = [{**_row(it), "time": _short(it.time_ms), "what": _words(it.what, names)} for it in found]
    show(rows, {"offset": "OFFSET", "epoch": "EPOCH", "time": "TIME", "type": "TYPE", "what": "WHAT"}, output)


async def _chosen(link: KafkaClient, log: Log, first: int | None, snapshot: bool) -> AsyncIterator[Entry]:
    begin = max(log.start, first or 0)
    if snapshot and log.snapshot is not None:
        for entry in await metadata_log.snapshot_entries(link, log, log.snapshot):
            yield entry
        begin = log.snapshot.end
    async for entry in metadata_log.entries(link, log, begin):
        yield entry


def _state(log: Log) -> dict[str, Any]:
    return {
        "leader": log.quorum.leader,
        "epoch": log.quorum.epoch,
        "start": log.start,
        "highWatermark": log.quorum.high_watermark,
        "snapshot": {"end": log.snapshot.end, "epoch": log.snapshot.epoch} if log.snapshot else None,
        "brokers": [{"id": it.broker, "member": it.is_voter, "end": it.log_end_offset} for it in log.quorum.replicas],
    }


def _tell(log: Log) -> None:
    facts(
        {
            "leader": log.quorum.leader,
            "epoch": log.quorum.epoch,
            "first offset": log.start,
            "high watermark": log.quorum.high_watermark,
            "snapshot": f"up to offset {log.snapshot.end}" if log.snapshot else None,
            "members": [it.broker for it in log.quorum.replicas if it.is_voter],
            "observers": [it.broker for it in log.quorum.replicas if not it.is_voter],
            "behind": _behind(log),
        }
    )


def _behind(log: Log) -> str | None:
    behind = [
        (it.broker, log.quorum.high_watermark - it.log_end_offset)
        for it in log.quorum.replicas
        if 0 <= it.log_end_offset < log.quorum.high_watermark
    ]
    return ", ".join(f"{broker} by {count} records" for broker, count in behind) or None


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "offset": entry.offset,
        "epoch": entry.epoch,
        "time": datetime.fromtimestamp(entry.time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "type": entry.what.get("type"),
        "what": {key: value for key, value in entry.what.items() if key != "type"},
    }


def _short(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _words(what: dict[str, Any], names: dict[str, str]) -> str:
    """`broker=1 epoch=4`: without what says nothing to people, and with a topic's name in place of its id. `names`: of topics, by id."""
    said = {key: value for key, value in what.items() if value is not None and key not in UNSAID}
    if said.get("topic") in names:
        said["topic"] = names[said["topic"]]
    return " ".join(f"{key}={_value(value)}" for key, value in said.items())


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
