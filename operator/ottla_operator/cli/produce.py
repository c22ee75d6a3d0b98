"""`ottla produce`."""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla_broker.wire.batch import Compression
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, new_app, parse_pairs
from ottla_operator.cli.progress_bar import ProduceProgress, produce_progress
from ottla_operator.cli.record_format import InvalidLine, LineReader, json_record_reader, value_reader
from ottla_operator.cli.resume import ExistingRecords, PartitionCounts
from ottla_operator.formatting import format_count
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.producer import Producer
from ottla_operator.local.load_limit import LimitedLoad

READ_BYTES: Final = 1 << 20
MIN_PAUSE_S: Final = 0.05
"""Shortest pause of a limited rate; shorter ones are accumulated."""

app = new_app()


class CompressionType(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    all = "all"
    leader = "1"


@app.command()
def produce(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Topic. Optional with --lines, whose records can name their topic."),
    ] = None,
    file: Annotated[str, typer.Option("--file", "-f", help="File to read values from. -: standard input.")] = "-",
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            help="File of JSON lines to use instead of --file, each with topic, key, value, and optionally partition, "
            "timestamp and headers. It excludes --key-separator, --key-field, --timestamp-field, --partition and "
            "--header.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Separator of key and value in a line.")
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(help="Field of JSON values that is the key. Several (a,b) are joined by |.")
    ] = None,
    timestamp_field: Annotated[
        str | None, typer.Option(help="Field of JSON values that is the timestamp, in ms or ISO 8601.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record. Repeatable."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition. Default: determined by the key.")
    ] = None,
    compression: Annotated[
        CompressionType, typer.Option("--compression", "-z", help="Compression of batches.")
    ] = CompressionType.none,
    acks: Annotated[
        Acks, typer.Option(help="Acknowledgement: by all in-sync replicas, or by the leader (1).")
    ] = Acks.all,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Maximum number of records per second.")] = None,
    total: Annotated[int | None, typer.Option(help="Number of records, for the progress bar.")] = None,
    if_empty: Annotated[
        bool, typer.Option("--if-empty", help="Skip records of topics that have, or had, records.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume an earlier run with the same lines: skip those that their partitions already have."
        ),
    ] = False,
    partitions_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "With --resume: file in which the number of partitions of each topic is stored, in case "
                "partitions are added."
            ),
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="With --resume: number of partitions when the earlier run started."),
    ] = None,
    limit_file: Annotated[
        Path | None,
        typer.Option(hidden=True, help="File with a limit of the rate. The limit ends when the file is deleted."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Write records to topics: one for each line of a file or of standard input.

    Example: ottla produce orders --file orders.jsonl --key-field id
    """
    if resume and if_empty:
        raise typer.BadParameter("--resume and --if-empty exclude each other")
    if not resume and (partitions_file or partitions):
        raise typer.BadParameter("--partitions and --partitions-file need --resume")
    value_options = {
        "--key-separator": key_separator,
        "--key-field": key_field,
        "--timestamp-field": timestamp_field,
        "--partition": partition,
        "--header": header,
    }
    if lines is not None:
        if given := [option for option, value in value_options.items() if value is not None]:
            raise typer.BadParameter(f"--lines and {given[0]} exclude each other: each line has its own")
        read, source = json_record_reader(topic), lines
    elif topic is not None:
        read = value_reader(
            topic,
            partition=partition,
            key_separator=key_separator,
            key_fields=tuple(it for it in (key_field or "").split(",") if it),
            timestamp_field=timestamp_field,
            headers=tuple(parse_pairs(header or [], "header").items()),
        )
        source = file
    else:
        raise typer.BadParameter("give the topic, or --lines with records that name theirs")

    async def work(client: KafkaClient) -> None:
        producer = Producer(client, Compression[compression.value], -1 if acks is Acks.all else 1)
        await producer.open()
        existing = None
        if if_empty or resume:
            existing = ExistingRecords(client, producer, if_empty, PartitionCounts(partitions_file), partitions)
        pause_of = LimitedLoad(limit_file).pause_s if limit_file is not None else constant_rate(rate)
        with produce_progress(quiet, total, _file_size(source) if total is None else None) as progress:
            await _write_records(producer, source, read, pause_of, existing, progress)

    call_brokers(bootstrap, command_config, work)


def constant_rate(rate: float | None) -> Callable[[str], float]:
    """A function that counts a record of a topic, and returns how many seconds to wait before the
    next one. `rate`: records per second; None for no limit.
    """
    if rate is None:
        return lambda _: 0.0
    number, began_s = itertools.count(1), time.monotonic()
    return lambda _: next(number) / rate - (time.monotonic() - began_s)


async def _write_records(
    producer: Producer,
    source: str,
    read: LineReader,
    pause_of: Callable[[str], float],
    existing: ExistingRecords | None,
    progress: ProduceProgress,
) -> None:
    number = 0
    async for lines in _read_lines(source):
        now_ms = time.time_ns() // 1_000_000
        for text in lines:
            number += 1
            if not text:
                continue
            try:
                addressed = read(text, now_ms)
            except InvalidLine as error:
                await producer.flush()
                name = "standard input" if source == "-" else source
                written = f"written before it: {format_count(producer.sent_records, 'record')}"
                raise CommandError(ExitCode.usage, f"{name}:{number}: {error}; {written}") from error
            if existing is not None:
                await existing.prepare(addressed.topic)
            partition = await producer.choose_partition(addressed.topic, addressed.record.key, addressed.partition)
            if existing is not None and existing.skip(partition):
                continue
            await producer.add(partition, addressed.record)
            if (pause_s := pause_of(addressed.topic)) > MIN_PAUSE_S:
                await producer.send()
                progress.update(producer.sent_records, producer.sent_bytes)
                await asyncio.sleep(pause_s)
        size = sum(map(len, lines))
        progress.update(producer.sent_records, producer.sent_bytes, size + len(lines))
        if size < READ_BYTES // 2:  # input is slow, such as typing: do not delay it
            await producer.send()
    await producer.flush()
    progress.update(producer.sent_records, producer.sent_bytes)
    progress.finish(existing.skipped if existing else 0)


async def _read_lines(source: str) -> AsyncIterator[list[bytes]]:
    """Lines without newlines, as many at a time as are available. Raises CommandError."""
    try:
        # Unbuffered reads in a thread return what a pipe has, and do not block the event loop.
        descriptor = sys.stdin.fileno() if source == "-" else os.open(source, os.O_RDONLY)
    except OSError as error:
        raise CommandError(ExitCode.not_found, f"{source}: {error.strerror}") from error
    rest = b""
    while data := await asyncio.to_thread(_read_chunk, descriptor, source):
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if lines:
            yield lines
    if rest:
        yield [rest]


def _read_chunk(descriptor: int, source: str) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError as error:  # a folder can be opened, but not read
        raise CommandError(ExitCode.failed, f"{source}: {error.strerror}") from error


def _file_size(source: str) -> int | None:
    """None for standard input, and for a file that cannot be read."""
    try:
        return Path(source).stat().st_size if source != "-" else None
    except OSError:
        return None
