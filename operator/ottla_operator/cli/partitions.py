"""`ottla partitions`, also as `kubectl ottla partitions`."""

import asyncio
from typing import Annotated, Any, Final

import typer

from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    AllTopics,
    Bootstrap,
    CommandConfig,
    Output,
    OutputFormat,
    new_app,
)
from ottla_operator.cli.output import print_rows
from ottla_operator.kafka import cluster, log_dirs, offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.topics import TopicDescription

COLUMNS: Final = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "leader": "LEADER",
    "replicas": "REPLICAS",
    "isr": "ISR",
    "start": "START",
    "end": "END",
    "bytes": "BYTES",
    "problem": "PROBLEM",
}

app = new_app()


@app.command()
def partitions(
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Topics. Default: all.")] = None,
    problems: Annotated[
        bool, typer.Option("--problems", help="Only partitions that are offline or have replicas out of sync.")
    ] = False,
    all_topics: AllTopics = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """List partitions with their leader, in-sync replicas, offsets and size."""

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        if names:
            found = list((await topics.require_topics(client, names)).values())
        else:
            found = [it for it in await topics.list_topics(client) if all_topics or not it.is_internal]
        return await _describe(client, found)

    rows = call_brokers(bootstrap, command_config, work)
    print_rows([row for row in rows if row["problem"] or not problems], COLUMNS, output)


async def _describe(client: KafkaClient, described: list[TopicDescription]) -> list[dict[str, Any]]:
    """One row for each partition. Values that only an unresponsive broker knows are None."""
    brokers = await cluster.list_broker_ids(client)
    starts, ends, sizes = await asyncio.gather(
        offsets.list_reachable_offsets(client, described, EARLIEST_TIMESTAMP),
        offsets.list_reachable_offsets(client, described, LATEST_TIMESTAMP),
        log_dirs.describe_replica_sizes(client, brokers),
    )
    kinds = {(it.topic, it.partition): it.kind for it in cluster.find_partition_problems(described)}
    return [
        {
            "topic": topic.name,
            "partition": it.index,
            "leader": it.leader if it.leader >= 0 else None,
            "replicas": list(it.replicas),
            "isr": list(it.isr),
            "start": starts.get((topic.name, it.index)),
            "end": ends.get((topic.name, it.index)),
            "bytes": sizes.get(it.leader, {}).get((topic.name, it.index)),
            "problem": kinds.get((topic.name, it.index), ""),
        }
        for topic in sorted(described, key=lambda it: it.name)
        for it in topic.partitions
    ]
