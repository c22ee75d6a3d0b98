"""`ottla topics`."""

from typing import Annotated, Any

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.elect import elect
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandConfig,
    Output,
    OutputFormat,
    Yes,
    new_app,
    parse_pairs,
)
from ottla_operator.cli.output import print_document, print_fields, print_rows
from ottla_operator.cli.reassign import reassign
from ottla_operator.kafka import cluster, configs, log_dirs, offsets, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.topics import BROKER_DEFAULT

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Topic setting, such as retention.ms=60000. Repeatable."),
]

app = new_app("Manage topics.")


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
) -> None:
    """List topics."""

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        all_topics = await topics.list_topics(client)
        shown = [it for it in all_topics if internal or not (it.is_internal or it.name.startswith("__"))]
        ends = await offsets.list_reachable_offsets(client, shown, LATEST_TIMESTAMP)
        starts = await offsets.list_reachable_offsets(client, shown, EARLIEST_TIMESTAMP)
        brokers = await cluster.list_broker_ids(client)
        sizes = log_dirs.sum_by_topic(await log_dirs.describe_replica_sizes(client, brokers))
        return [
            {
                "name": topic.name,
                "partitions": len(topic.partitions),
                "replicas": topic.replication_factor,
                "records": sum(
                    ends[partition] - starts.get(partition, 0)
                    for it in topic.partitions
                    if (partition := (topic.name, it.index)) in ends
                ),
                "bytes": sizes.get(topic.name, 0),
                "id": str(topic.id) if topic.id else None,
                "internal": topic.is_internal,
            }
            for topic in shown
        ]

    columns = {"name": "TOPIC", "partitions": "PARTITIONS", "replicas": "REPLICAS", "records": "RECORDS"}
    print_rows(call_brokers(bootstrap, command_config, work), {**columns, "bytes": "BYTES"}, output)


@app.command()
def describe(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
    all_settings: Annotated[bool, typer.Option("--all", help="Include inherited settings.")] = False,
) -> None:
    """Describe a topic.

    Shows leaders, replicas, reassignments, offsets and settings.
    """
    found = call_brokers(bootstrap, command_config, lambda client: _describe(client, name, all_settings))
    if output is not OutputFormat.table:
        print_document(found, output)
        return
    partitions = found["partitions"]
    print_fields(
        {
            "topic": found["name"],
            "id": found["id"],
            "partitions": len(partitions),
            "replicas": found["replicas"],
            "under-replicated": sum(it["underReplicated"] for it in partitions),
        }
    )
    print()
    columns = {"partition": "PARTITION", "leader": "LEADER", "replicas": "REPLICAS", "isr": "ISR"}
    optional = {
        "elr": "ELIGIBLE",
        "lastKnownElr": "LAST KNOWN",
        "adding": "ADDING",
        "removing": "REMOVING",
        "problem": "PROBLEM",
    }
    columns |= {field: heading for field, heading in optional.items() if any(it[field] for it in partitions)}
    print_rows(partitions, {**columns, "start": "START", "end": "END", "bytes": "BYTES"}, output)
    if found["settings"]:
        print()
        print_rows(found["settings"], {"name": "SETTING", "value": "VALUE", "source": "SOURCE"}, output)


async def _describe(client: KafkaClient, name: str, all_settings: bool) -> dict[str, Any]:
    topic = await topics.describe_topic(client, name)
    ends = await offsets.list_reachable_offsets(client, [topic], LATEST_TIMESTAMP)
    starts = await offsets.list_reachable_offsets(client, [topic], EARLIEST_TIMESTAMP)
    settings = (await configs.describe_topic_configs(client, [name]))[name]
    elr = await topics.describe_eligible_leaders(client, name)
    ongoing = await reassignments.list_reassignments(client)
    brokers = await cluster.list_broker_ids(client)
    sizes = await log_dirs.describe_replica_sizes(client, brokers, [(name, it.index) for it in topic.partitions])
    none = topics.EligibleLeaders((), ())
    problems = {it.partition: it.kind for it in cluster.find_partition_problems([topic], ongoing)}
    return {
        "name": topic.name,
        "id": str(topic.id) if topic.id else None,
        "internal": topic.is_internal,
        "replicas": topic.replication_factor,
        "partitions": [
            {
                "partition": it.index,
                "leader": it.leader,
                "leaderEpoch": it.leader_epoch,
                "replicas": list(it.replicas),
                "isr": list(it.isr),
                "elr": list(elr.get(it.index, none).eligible),
                "lastKnownElr": list(elr.get(it.index, none).last_known),
                "offline": list(it.offline_replicas),
                "adding": list(reassignment.adding) if (reassignment := ongoing.get((name, it.index))) else [],
                "removing": list(reassignment.removing) if reassignment else [],
                "underReplicated": problems.get(it.index) == cluster.UNDER_REPLICATED,
                "start": starts.get((name, it.index)),
                "end": ends.get((name, it.index)),
                "bytes": sum(of_broker.get((name, it.index), 0) for of_broker in sizes.values()),
                "problem": problems.get(it.index, ""),
            }
            for it in topic.partitions
        ],
        "settings": [
            {"name": it.name, "value": it.value, "source": it.source}
            for it in settings
            if all_settings or it.source == "topic"
        ],
    }


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Number of partitions. Default: the brokers' num.partitions."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas", "-r", min=1, help="Replication factor. Default: the brokers' default.replication.factor."
        ),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Create a topic."""
    settings = parse_pairs(config or [], "setting")

    async def work(client: KafkaClient) -> bool:
        try:
            await topics.create_topic(client, name, partitions or BROKER_DEFAULT, replicas or BROKER_DEFAULT, settings)
        except KafkaError as error:
            if if_not_exists and error.code == ErrorCode.topic_already_exists:
                return False
            raise
        return True

    print(f"topic {name} {'created' if call_brokers(bootstrap, command_config, work) else 'already exists'}")


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="New number of partitions. It can only be increased."),
    ] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Topic setting to reset to its default. Repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Add partitions and alter settings."""
    settings = parse_pairs(config or [], "setting")
    if partitions is None and not settings and not unset:
        raise typer.BadParameter("nothing to alter: give --partitions, --config or --unset")

    async def work(client: KafkaClient) -> None:
        await topics.describe_topic(client, name)
        if settings or unset:
            await configs.alter_topic_config(client, name, settings, unset or [])
        if partitions is not None:
            await topics.create_partitions(client, name, partitions)

    call_brokers(bootstrap, command_config, work)
    print(f"topic {name} altered")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics with all records."""
    if not yes:
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True)

    async def work(client: KafkaClient) -> None:
        for name in names:
            await topics.describe_topic(client, name)
            await topics.delete_topic(client, name)
            print(f"topic {name} deleted")

    call_brokers(bootstrap, command_config, work)


app.command()(reassign)
app.command()(elect)
