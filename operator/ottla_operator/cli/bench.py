"""`ottla bench`."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_operator.bench.load import Bench, Load
from ottla_operator.bench.measurements import PHASES, Latency, Throughput
from ottla_operator.bench.plot import plot
from ottla_operator.cli.command_config import read_security
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat, new_app
from ottla_operator.cli.output import print_document, print_rows
from ottla_operator.formatting import format_size
from ottla_operator.kafka import offsets, topics
from ottla_operator.kafka.client import KafkaClient, connect
from ottla_operator.plan.topics import BROKER_DEFAULT

MAX_SECONDS: Final = 600.0
LEADER_ATTEMPTS: Final = 50
LEADER_PAUSE_S: Final = 0.1
COLUMNS: Final = {
    "phase": "PHASE",
    "records": "RECORDS",
    "recordsPerSecond": "RECORDS/S",
    "bytesPerSecond": "BYTES/S",
    "p50Ms": "P50 MS",
    "p95Ms": "P95 MS",
    "p99Ms": "P99 MS",
    "maxMs": "MAX MS",
}

app = new_app()


@dataclass(slots=True)
class Results:
    """Results of the selected phases. `rates`: by phase, for produce and consume. `latency`: None
    without the phase latency.
    """

    topic: str
    rates: dict[str, Throughput] = field(default_factory=dict)
    latency: Latency | None = None


@app.command()
def bench(
    phases: Annotated[
        list[str] | None, typer.Argument(metavar="PHASE", help=f"{', '.join(PHASES)}. Default: all.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.5, max=MAX_SECONDS, help="Longest duration of each phase.")] = 5.0,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", help="Topic to write to. Its new records stay. Default: a new one, deleted at the end."
        ),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=100, help="Partitions of the new topic.")] = 3,
    record_bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="Size of a record's value.")] = 100,
    batch_bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="Size of the values in one batch.")] = 64 << 10,
    max_bytes: Annotated[int, typer.Option(min=1, help="Maximum size of all values of the phase produce.")] = 1 << 30,
    rate: Annotated[float, typer.Option(min=0.1, max=1000, help="Records per second in the phase latency.")] = 50.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Measure how fast brokers take and return records, and plot the rates.

    Without --topic, the command creates a topic, and deletes it at the end. It writes records as
    fast as it can, then single records at a steady rate to time their latency, and then reads the
    records of the topic. The load is that of one process.
    """
    phases = phases or list(PHASES)
    if unknown := [it for it in phases if it not in PHASES]:
        raise CommandError(ExitCode.usage, f"there is no phase {unknown[0]!r}; allowed: {', '.join(PHASES)}")
    if topic is None and phases == ["consume"]:
        raise CommandError(ExitCode.usage, "a new topic has nothing to consume: add the phase produce, or --topic")
    load = Load(seconds, record_bytes, batch_bytes, max_bytes, rate)
    results = run_command(_run(bootstrap, command_config, phases, topic, partitions, load))
    _print(results, load, output)


async def _run(
    bootstrap: str, command_config: Path | None, phases: list[str], topic: str | None, partitions: int, load: Load
) -> Results:
    security = read_security(command_config)
    async with (
        connect(bootstrap, security=security) as client,
        connect(bootstrap, security=security) as reader,
        _use_topic(client, topic, partitions) as name,
    ):
        return await _measure(client, reader, phases, name, load)


@asynccontextmanager
async def _use_topic(client: KafkaClient, topic: str | None, partitions: int) -> AsyncIterator[str]:
    """Yields `topic`, or the name of a new topic with the brokers' default replication, which is
    deleted at the end, also after an error or Ctrl-C.
    """
    if topic is not None:
        yield topic
        return
    name = f"ottla-bench-{secrets.token_hex(4)}"
    id_ = await topics.create_topic(client, name, partitions, BROKER_DEFAULT, {})
    try:
        await _wait_for_leaders(client, name)
        yield name
    finally:
        await (topics.delete_topic(client, name) if id_ is None else topics.delete_topic_by_id(client, id_))


async def _wait_for_leaders(client: KafkaClient, name: str) -> None:
    """Waits until every partition has a leader: brokers may learn of a new topic a moment after its
    creation. Raises KafkaError.
    """
    for _ in range(LEADER_ATTEMPTS):
        found = (await topics.describe_topics(client, [name])).get(name)
        if found is not None and all(it.leader >= 0 for it in found.partitions):
            return
        await asyncio.sleep(LEADER_PAUSE_S)
    raise KafkaError(ErrorCode.leader_not_available, f"topic {name!r}: its partitions got no leaders")


async def _measure(client: KafkaClient, reader: KafkaClient, phases: list[str], topic: str, load: Load) -> Results:
    bench, results = await Bench.of_topic(client, reader, topic, load), Results(topic)
    starts = await _list_offsets(client, topic, EARLIEST_TIMESTAMP)
    if "produce" in phases:
        results.rates["produce"] = await bench.produce()
    if "latency" in phases:
        results.latency = await bench.measure_latency((await _list_offsets(client, topic, LATEST_TIMESTAMP))[0])
    if "consume" in phases:
        results.rates["consume"] = await bench.consume(starts, await _list_offsets(client, topic, LATEST_TIMESTAMP))
    return results


async def _list_offsets(client: KafkaClient, topic: str, timestamp: int) -> list[int]:
    """The offset at the timestamp in each partition, by partition index. Raises KafkaError if a
    partition has no leader.
    """
    described = await topics.describe_topic(client, topic)
    found = await offsets.require_offsets(client, described, timestamp)
    return [found[topic, it.index] for it in described.partitions]


def _print(results: Results, load: Load, output: OutputFormat) -> None:
    if output is not OutputFormat.table:
        document: dict[str, Any] = {name: it.summary() for name, it in results.rates.items()}
        if results.latency is not None:
            document["latency"] = results.latency.summary()
        print_document({"topic": results.topic, **document}, output)
        return
    rows: list[dict[str, Any]] = []
    for name, rate in results.rates.items():
        summary = rate.summary()
        rates = {
            "recordsPerSecond": round(summary["recordsPerSecond"]),
            "bytesPerSecond": f"{format_size(round(summary['bytesPerSecond']))}/s",
        }
        rows.append({"phase": name, **summary, **rates})
    if results.latency is not None:
        summary = results.latency.summary()
        for phase in ("acknowledged", "received"):
            rows.append({"phase": f"until {phase}", "records": summary["records"], **summary[phase]})
    print_rows([{column: row.get(column) for column in COLUMNS} for row in rows], COLUMNS, output)
    for name, rate in results.rates.items():
        _print_plot(f"{name}, bytes per second", rate.bytes_per_second, _format_rate, rate.seconds)
        if rate.is_limited_by_client:
            print(f"This command used {rate.cpu_s / rate.seconds:.0%} of a core: brokers may be faster than this.")
    if results.latency is not None:
        seconds = len(results.latency.received_ms) / load.latency_rate
        _print_plot("latency until received, ms", results.latency.received_ms, "{:.1f}".format, seconds)


def _print_plot(title: str, values: Sequence[float], label: Callable[[float], str], seconds: float) -> None:
    print(f"\n{title}")
    print(*plot(values, label, seconds=seconds), sep="\n")


def _format_rate(value: float) -> str:
    return format_size(round(value))
