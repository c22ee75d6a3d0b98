"""`ottla consume`."""

import asyncio
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_broker.wire.records import Record
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.offset_spec import OFFSET_FORMS, OffsetSpec, parse_offset_spec
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, new_app
from ottla_operator.cli.record_format import decode_text, record_to_json
from ottla_operator.kafka import groups, offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.consumer import Consumer
from ottla_operator.kafka.offsets import TopicPartition

COMMIT_INTERVAL_S: Final = 5.0

FormatRecord = Callable[[TopicPartition, Record], str]

app = new_app()


class RecordFormat(StrEnum):
    text = "text"
    json = "json"


@app.command()
def consume(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OFFSET",
            help=f"Where to start: {OFFSET_FORMS}. Relative offsets count from the end. Default: beginning.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Partition to read. Repeatable. Default: all."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Commit for this group, and start at its committed offsets unless --from is given. Does not join it.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Maximum number of records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Exit after the records that existed when the command started.")
    ] = False,
    output: Annotated[
        RecordFormat, typer.Option("--output", "-o", help="text: values. json: records with all fields, one per line.")
    ] = RecordFormat.text,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="For text: print the key and a tab first.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="For text: print the headers and a tab first.")] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Include records of open and aborted transactions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Print records of topics until Ctrl-C, --max or --exit.

    Example: ottla consume orders --from 1h -o json
    """
    spec = parse_offset_spec(start) if start else None

    def format_record(partition: TopicPartition, record: Record) -> str:
        if output is RecordFormat.json:
            return record_to_json(*partition, record)
        fields = [",".join(f"{key}={decode_text(value)}" for key, value in record.headers)] if headers else []
        fields += [decode_text(record.key) or ""] if keys else []
        return "\t".join([*fields, "(null)" if record.value is None else decode_text(record.value)])

    async def work(client: KafkaClient) -> None:
        starts, ends = await _log_bounds(client, names, set(partition or ()))
        positions = await _start_positions(client, spec, group, starts, ends)
        consumer = Consumer(client, positions, read_committed=not uncommitted)
        upto = ends if until_end else None
        printing = asyncio.create_task(_print_records(consumer, upto, count, format_record, group))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, printing.cancel)
        try:
            await printing
        except asyncio.CancelledError:
            pass
        finally:
            if group:
                await groups.alter_group_offsets(client, group, printed_offsets(consumer, upto))

    call_brokers(bootstrap, command_config, work)


async def _print_records(
    consumer: Consumer,
    ends: dict[TopicPartition, int] | None,
    count: int | None,
    format_record: FormatRecord,
    group: str | None,
) -> None:
    """Prints records up to `ends`, or until `count` are printed; None is no limit. Commits the
    offsets of printed records for `group` at intervals.
    """
    loop = asyncio.get_running_loop()
    printed, committed_at = 0, loop.time()
    if ends is not None and _has_reached(consumer, ends):
        return
    async for partition, records in consumer.records():
        to_print = [it for it in records if ends is None or it.offset < ends[partition]]
        if count is not None and len(to_print) >= count - printed:
            to_print = to_print[: count - printed]
            consumer.positions[partition] = to_print[-1].offset + 1
        try:
            for record in to_print:
                print(format_record(partition, record))
            sys.stdout.flush()
        except OSError:  # the reader has closed the pipe, and may not have received any of these
            consumer.positions[partition] = records[0].offset
            raise
        printed += len(to_print)
        if printed == count or (ends is not None and _has_reached(consumer, ends)):
            return
        if group and loop.time() - committed_at > COMMIT_INTERVAL_S:
            await groups.alter_group_offsets(consumer.client, group, printed_offsets(consumer, ends))
            committed_at = loop.time()


def printed_offsets(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> dict[TopicPartition, int]:
    """Positions of the consumer, at most `ends`: records beyond were fetched and not printed."""
    return {partition: at if ends is None else min(at, ends[partition]) for partition, at in consumer.positions.items()}


def _has_reached(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return all(consumer.positions[partition] >= end for partition, end in ends.items())


async def _log_bounds(
    client: KafkaClient, names: list[str], indexes: set[int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Log start and log end of the partitions that have a leader. `indexes`: empty for all. Raises
    KafkaError if a topic does not exist or no partition is left.
    """
    found = await topics.require_topics(client, names)
    starts = await offsets.list_offsets(client, found.values(), EARLIEST_TIMESTAMP)
    ends = await offsets.list_offsets(client, found.values(), LATEST_TIMESTAMP)
    partitions = {it for it in ends if it in starts and (not indexes or it[1] in indexes)}
    if not partitions:
        message = f"{', '.join(names)}: there is no such partition with a leader"
        raise KafkaError(ErrorCode.unknown_topic_or_partition, message)
    return {it: starts[it] for it in partitions}, {it: ends[it] for it in partitions}


async def _start_positions(
    client: KafkaClient,
    spec: OffsetSpec | None,
    group: str | None,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if spec is None:
        committed = await groups.list_group_offsets(client, group) if group else {}
        return {it: max(starts[it], committed.get(it, starts[it])) for it in starts}
    at_time: dict[TopicPartition, int] = {}
    if spec.time_ms is not None:
        found = await topics.describe_topics(client, {topic for topic, _ in starts})
        at_time = await offsets.list_offsets(client, found.values(), spec.time_ms)
    return {it: spec.resolve(starts[it], ends[it], ends[it], at_time.get(it)) for it in starts}
