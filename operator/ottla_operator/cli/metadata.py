"""`ottla cluster metadata`."""

import json
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat
from ottla_operator.cli.output import print_document, print_fields, print_rows
from ottla_operator.formatting import format_count
from ottla_operator.kafka import metadata_log, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.metadata_log import MetadataLog, MetadataRecord

HIDDEN_FIELDS: Final = frozenset({"type", "incarnation", "directories"})
"""Fields of records that the table omits."""

READ_AGAIN: Final = frozenset({ErrorCode.offset_out_of_range, ErrorCode.snapshot_not_found})
"""Errors after which the log is read again: a newer snapshot has replaced what was being read."""

Last = Annotated[
    int, typer.Option("--last", "-n", min=0, help="Number of records to show. Ignored with --from and --snapshot.")
]
From = Annotated[int | None, typer.Option("--from", min=0, metavar="OFFSET", help="Show all records from this offset.")]
RecordType = Annotated[str | None, typer.Option("--type", "-t", help="Show only records of this type.")]
WithSnapshot = Annotated[
    bool, typer.Option("--snapshot", help="Show the records of the latest snapshot and all records after it.")
]


def metadata(
    last: Last = 20,
    start: From = None,
    type_: RecordType = None,
    snapshot: WithSnapshot = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show the metadata log and its quorum.

    Every broker, topic, partition, setting and leader change is a record of the metadata log.
    """
    if snapshot and start is not None:
        raise typer.BadParameter("--snapshot and --from exclude each other")

    async def read(client: KafkaClient) -> tuple[MetadataLog, list[MetadataRecord]]:
        log = await metadata_log.describe_metadata_log(client)
        found: deque[MetadataRecord] = deque(maxlen=None if snapshot or start is not None else last)
        async for record in _read_records(client, log, start, snapshot):
            if type_ in (None, record.value.get("type")):
                found.append(record)
        return log, list(found)

    async def work(client: KafkaClient) -> tuple[MetadataLog, list[MetadataRecord], dict[str, str]]:
        try:
            log, found = await read(client)
        except KafkaError as error:
            if error.code not in READ_AGAIN:
                raise
            log, found = await read(client)
        names = {str(it.id): it.name for it in await topics.list_topics(client)} if output is OutputFormat.table else {}
        return log, found, names

    log, records, names = call_brokers(bootstrap, command_config, work)
    if output is not OutputFormat.table:
        print_document({**_quorum_document(log), "records": [_record_row(it) for it in records]}, output)
        return
    _print_quorum(log)
    print()
    rows = [
        {**_record_row(it), "time": _format_time(it.time_ms), "value": _format_value(it.value, names)} for it in records
    ]
    columns = {"offset": "OFFSET", "epoch": "EPOCH", "time": "TIME", "type": "TYPE", "value": "VALUE"}
    print_rows(rows, columns, output)


async def _read_records(
    client: KafkaClient, log: MetadataLog, start: int | None, snapshot: bool
) -> AsyncIterator[MetadataRecord]:
    begin = max(log.start_offset, start or 0)
    if snapshot and log.snapshot is not None:
        for record in await metadata_log.read_snapshot(client, log, log.snapshot):
            yield record
        begin = log.snapshot.end_offset
    async for record in metadata_log.read_log(client, log, begin):
        yield record


def _quorum_document(log: MetadataLog) -> dict[str, Any]:
    return {
        "leader": log.quorum.leader,
        "epoch": log.quorum.epoch,
        "start": log.start_offset,
        "highWatermark": log.quorum.high_watermark,
        "snapshot": {"end": log.snapshot.end_offset, "epoch": log.snapshot.epoch} if log.snapshot else None,
        "brokers": [{"id": it.broker, "voter": it.is_voter, "end": it.log_end_offset} for it in log.quorum.replicas],
    }


def _print_quorum(log: MetadataLog) -> None:
    print_fields(
        {
            "leader": log.quorum.leader,
            "epoch": log.quorum.epoch,
            "start offset": log.start_offset,
            "high watermark": log.quorum.high_watermark,
            "snapshot": f"up to offset {log.snapshot.end_offset}" if log.snapshot else None,
            "voters": [it.broker for it in log.quorum.replicas if it.is_voter],
            "observers": [it.broker for it in log.quorum.replicas if not it.is_voter],
            "lagging": _format_lag(log),
        }
    )


def _format_lag(log: MetadataLog) -> str | None:
    end = log.quorum.high_watermark
    lags = [(it.broker, end - it.log_end_offset) for it in log.quorum.replicas if 0 <= it.log_end_offset < end]
    return ", ".join(f"{broker} by {format_count(count, 'record')}" for broker, count in lags) or None


def _record_row(record: MetadataRecord) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "epoch": record.epoch,
        "time": datetime.fromtimestamp(record.time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "type": record.value.get("type"),
        "value": {field: value for field, value in record.value.items() if field != "type"},
    }


def _format_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _format_value(value: dict[str, Any], topic_names: dict[str, str]) -> str:
    """`broker=1 epoch=4`, with the topic's name instead of its id. `topic_names`: by id."""
    shown = {field: it for field, it in value.items() if it is not None and field not in HIDDEN_FIELDS}
    if shown.get("topic") in topic_names:
        shown["topic"] = topic_names[shown["topic"]]
    return " ".join(f"{field}={_format_field(it)}" for field, it in shown.items())


def _format_field(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
