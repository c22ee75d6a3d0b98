"""`ottla produce`: lines from a file or standard input into topics."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ottla_broker.wire.batch import Compression
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.cli.left_out import LeftOut, Notes
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, pairs
from ottla_operator.cli.progress import Meter, meter
from ottla_operator.cli.record_format import InvalidLine, Reader, json_record_reader, value_reader
from ottla_operator.kafka.producer import Producer

CHUNK = 1 << 20


class Codec(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    all = "all"
    leader = "1"


def add_to(app: typer.Typer) -> None:
    app.command("produce", help="Write records, one for each line of a file or of standard input.")(produce)


def produce(
    topic: Annotated[
        str | None, typer.Argument(help="The topic; may be left out with --lines, where each line can name its own.")
    ] = None,
    file: Annotated[str, typer.Option("--file", "-f", help="Where lines are read from; - is standard input.")] = "-",
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            help="Read whole records instead: JSON lines with topic, key, value, and if wished partition, timestamp, headers.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value in a line.")
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option(help="Lines are JSON objects; the key is this field's value, of several (a,b) joined by |."),
    ] = None,
    timestamp_field: Annotated[
        str | None, typer.Option(help="Lines are JSON objects; the timestamp is this field's value (ms or ISO 8601).")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be given several times."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition; without it, the key decides.")
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="How batches are compressed.")] = Codec.none,
    acks: Annotated[Acks, typer.Option(help="Who must have a record before it counts.")] = Acks.all,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Most records per second.")] = None,
    total: Annotated[int | None, typer.Option(help="How many records will come, for the progress bar.")] = None,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Leave out records of topics that hold any.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where an earlier run with the same lines ended: leaves out, for each partition, as many as it has.",
        ),
    ] = False,
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where --resume remembers how many partitions each topic had at first, so that topics may grow meanwhile.",
        ),
    ] = None,
    over: Annotated[
        int | None,
        typer.Option(min=1, help="How many partitions there were when the run that --resume goes on with began."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    if lines is None and topic is None:
        raise typer.BadParameter("name the topic, or give --lines with records that name theirs")
    if lines is not None:
        read, source = json_record_reader(topic), lines
    else:
        assert topic is not None
        fields = tuple(it for it in (key_field or "").split(",") if it)
        read = value_reader(
            topic,
            partition=partition,
            key_separator=key_separator,
            key_fields=fields,
            timestamp_field=timestamp_field,
            headers=tuple(pairs(header or [], "header").items()),
        )
        source = file
    if resume and if_empty:
        raise typer.BadParameter("--resume and --if-empty exclude each other")
    if not resume and (notes or over):
        raise typer.BadParameter("--notes and --over belong to --resume")

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            producer = Producer(link, Compression[compression.value], -1 if acks is Acks.all else 1)
            await producer.open()
            left_out = LeftOut(link, producer, if_empty, Notes(notes), over) if if_empty or resume else None
            with meter(quiet, total, _size(source) if total is None else None) as shown:
                await _write(producer, source, read, rate, left_out, shown)

    run_command(work())


async def _write(
    producer: Producer, source: str, read: Reader, rate: float | None, left_out: LeftOut | None, shown: Meter
) -> None:
    number, began = 0, time.monotonic()
    async for chunk in _chunks(source):
        now_ms = time.time_ns() // 1_000_000
        for text in chunk:
            number += 1
            if not text:
                continue
            try:
                addressed = read(text, now_ms)
            except InvalidLine as bad:
                await producer.flush()
                name = "standard input" if source == "-" else source
                raise CommandError(
                    ExitCode.usage,
                    f"{name}:{number}: {bad}; the {producer.sent_records:,} records before it are written",
                ) from bad
            if left_out is not None:
                await left_out.prepare(addressed.topic)
            place = await producer.choose_partition(addressed.topic, addressed.record.key, addressed.partition)
            if left_out is not None and left_out.has(place):
                continue
            await producer.add(place, addressed.record)
            if rate is not None and (ahead := number / rate - (time.monotonic() - began)) > 0.05:
                await producer.send()
                shown.now(producer.sent_records, producer.sent_bytes)
                await asyncio.sleep(ahead)
        shown.now(producer.sent_records, producer.sent_bytes, sum(map(len, chunk)) + len(chunk))
        if sum(map(len, chunk)) < CHUNK // 2:  # somebody types, or a slow program prints: do not keep it waiting
            await producer.send()
    await producer.flush()
    shown.now(producer.sent_records, producer.sent_bytes)
    shown.done(left_out.records if left_out else 0)


async def _chunks(source: str) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as many at a time as there are."""
    try:
        # Unbuffered reading in a thread: a pipe gives what is there, and the loop goes on meanwhile.
        descriptor = sys.stdin.fileno() if source == "-" else os.open(source, os.O_RDONLY)
    except OSError as error:
        raise CommandError(ExitCode.not_found, f"{source}: {error.strerror}") from error
    rest = b""
    while data := await asyncio.to_thread(_read, descriptor, source):
        found = (rest + data).split(b"\n")
        rest = found.pop()
        if found:
            yield found
    if rest:
        yield [rest]


def _read(descriptor: int, source: str) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except OSError as error:  # a folder can be opened, too
        raise CommandError(ExitCode.failed, f"{source}: {error.strerror}") from error


def _size(source: str) -> int | None:
    try:
        return os.stat(source).st_size if source != "-" else None  # noqa: PTH116  # one figure is asked, of a name that may be no path
    except OSError:
        return None
