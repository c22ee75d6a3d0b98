"""`ottla consume`: records of topics onto standard output."""

import asyncio
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import run_command
from ottla_operator.cli.offset_spec import OffsetSpec, parse_offset_spec
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig
from ottla_operator.cli.record_format import record_to_json, text_of
from ottla_operator.kafka import groups, offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.consumer import Consumer
from ottla_operator.kafka.offsets import TopicPartition

COMMIT_EVERY_S = 5.0


class Form(StrEnum):
    text = "text"
    json = "json"


def add_to(app: typer.Typer) -> None:
    app.command("consume", help="Print records, from the beginning or another place, until Ctrl-C or as told.")(consume)


def consume(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="beginning, end, an offset, -N (from the end), a time (2026-05-01T12:00), or how long ago (2h).",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be given several times."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Go on where this group is, and commit what was printed. Does not share with other members.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--max", "-n", min=1, help="End after so many records.")] = None,
    until_end: Annotated[bool, typer.Option("--exit", "-e", help="End where the topic ended when this began.")] = False,
    output: Annotated[
        Form, typer.Option("--output", "-o", help="text: the values; json: a line for each whole record.")
    ] = Form.text,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="text: the key and a tab before each value.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="text: headers and a tab before each value.")] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also records of transactions that are open or were aborted.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    wanted = parse_offset_spec(start) if start else None

    def text(place: TopicPartition, record: Record) -> str:
        if output is Form.json:
            return record_to_json(*place, record)
        said = [",".join(f"{key}={text_of(value)}" for key, value in record.headers)] if headers else []
        said += [text_of(record.key) or ""] if keys else []
        return "\t".join([*said, text_of(record.value) if record.value is not None else "(null)"])  # type: ignore[list-item]  # not None here

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            starts, ends = await _bounds(link, names, set(partition or ()))
            positions = await _start(link, wanted, group, starts, ends)
            consumer = Consumer(link, positions, committed_only=not uncommitted)
            upto = ends if until_end else None
            printing = asyncio.create_task(_print(consumer, upto, count, text, group))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, printing.cancel)
            try:
                await printing
            except asyncio.CancelledError:
                pass
            finally:
                if group:
                    await groups.alter_group_offsets(link, group, printed_to(consumer, upto))

    run_command(work())


async def _print(
    consumer: Consumer,
    ends: dict[TopicPartition, int] | None,
    count: int | None,
    text: Callable[[TopicPartition, Record], str],
    group: str | None,
) -> None:
    loop = asyncio.get_running_loop()
    printed, committed_at = 0, loop.time()
    if ends is not None and _at_end(consumer, ends):
        return
    async for place, records in consumer.records():
        wanted = [it for it in records if ends is None or it.offset < ends[place]]
        if count is not None and len(wanted) >= count - printed:
            wanted = wanted[: count - printed]
            consumer.positions[place] = wanted[-1].offset + 1
        try:
            for record in wanted:
                print(text(place, record))
            sys.stdout.flush()
        except OSError:  # nobody reads on, and perhaps nobody has read any of these
            consumer.positions[place] = records[0].offset
            raise
        printed += len(wanted)
        if printed == count or (ends is not None and _at_end(consumer, ends)):
            return
        if group and loop.time() - committed_at > COMMIT_EVERY_S:
            await groups.alter_group_offsets(consumer.link, group, printed_to(consumer, ends))
            committed_at = loop.time()


def printed_to(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> dict[TopicPartition, int]:
    """Up to where everything was printed; beyond the end, records were read and left out."""
    return {place: at if ends is None else min(at, ends[place]) for place, at in consumer.positions.items()}


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return all(consumer.positions[place] >= end for place, end in ends.items())


async def _bounds(
    link: KafkaClient, names: list[str], partitions: set[int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    found = await topics.describe_topics(link, names)
    if missing := set(names) - set(found):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"there is no topic {', '.join(map(repr, sorted(missing)))}"
        )
    starts = await offsets.list_offsets(link, found.values(), offsets.EARLIEST)
    ends = await offsets.list_offsets(link, found.values(), offsets.LATEST)
    places = {it for it in ends if it in starts and (not partitions or it[1] in partitions)}
    if not places:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"{', '.join(names)}: there is no such partition that has a leader"
        )
    return {it: starts[it] for it in places}, {it: ends[it] for it in places}


async def _start(
    link: KafkaClient,
    wanted: OffsetSpec | None,
    group: str | None,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if wanted is None:
        committed = await groups.list_group_offsets(link, group) if group else {}
        return {it: max(starts[it], committed.get(it, starts[it])) for it in starts}
    times: dict[TopicPartition, int] = {}
    if wanted.time_ms is not None:
        found = await topics.describe_topics(link, {topic for topic, _ in starts})
        times = await offsets.list_offsets(link, found.values(), wanted.time_ms)
    return {it: wanted.offset(starts[it], ends[it], ends[it], times.get(it)) for it in starts}
