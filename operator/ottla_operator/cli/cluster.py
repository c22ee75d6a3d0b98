"""`ottla cluster`."""

from typing import Annotated, Any

import typer

from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.metadata import metadata
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandConfig,
    DryRun,
    Output,
    OutputFormat,
    new_app,
)
from ottla_operator.cli.output import print_document, print_fields, print_rows
from ottla_operator.cli.reassignment import Throttle, Watch, describe_moves, execute_moves, parse_rate, print_plan
from ottla_operator.cli.recover import recover
from ottla_operator.formatting import format_count, format_size
from ottla_operator.kafka import cluster, configs, log_dirs, quorum, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.reassignment_inputs import read_reassignment_inputs
from ottla_operator.plan.reassign import ImpossibleAssignment, drain_brokers

BrokerId = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Id of the broker.")]

app = new_app("Inspect or recover the cluster, and remove brokers.")


@app.command()
def describe(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = OutputFormat.table
) -> None:
    """Describe the cluster and its brokers."""
    found = call_brokers(bootstrap, command_config, _describe)
    if output is not OutputFormat.table:
        print_document(found, output)
        return
    names = {
        "id": "id",
        "controller": "controller",
        "controllerEpoch": "controller epoch",
        "topics": "topics",
        "partitions": "partitions",
        "underReplicated": "under-replicated",
        "offline": "offline",
        "reassigning": "reassigning",
    }
    print_fields({name: found[field] for field, name in names.items()})
    print()
    columns = {"id": "BROKER", "host": "HOST", "port": "PORT", "rack": "RACK", "node": "NODE"}
    columns |= {"state": "STATE", "leads": "LEADERS", "replicas": "REPLICAS", "size": "DISK"}
    rows = [{**it, "size": format_size(it["bytes"]) or "unknown"} for it in found["brokers"]]
    print_rows(rows, columns, output)


async def _describe(client: KafkaClient) -> dict[str, Any]:
    description = await cluster.describe_cluster(client, include_fenced=True)
    metadata_quorum = await quorum.describe_quorum(client)
    all_topics = await topics.list_topics(client)
    live = [it.id for it in description.brokers if not it.is_fenced]
    sizes = await log_dirs.describe_replica_sizes(client, live)
    nodes = await configs.describe_nodes(client, live)
    ongoing = await reassignments.list_reassignments(client)
    problems = cluster.find_partition_problems(all_topics, ongoing)
    partitions = [partition for topic in all_topics for partition in topic.partitions]
    return {
        "id": description.id,
        "controller": metadata_quorum.leader if metadata_quorum else description.controller,
        "controllerEpoch": metadata_quorum.epoch if metadata_quorum else None,
        "topics": len(all_topics),
        "partitions": len(partitions),
        "underReplicated": sum(it.kind == cluster.UNDER_REPLICATED for it in problems),
        "offline": sum(it.kind == cluster.OFFLINE for it in problems),
        "reassigning": len(ongoing),
        "brokers": [
            {
                "id": it.id,
                "host": it.host,
                "port": it.port,
                "rack": it.rack,
                "node": nodes.get(it.id),
                "state": "fenced" if it.is_fenced else "up",
                "fenced": it.is_fenced,
                "leads": sum(partition.leader == it.id for partition in partitions),
                "replicas": sum(it.id in partition.replicas for partition in partitions),
                "bytes": sum(sizes[it.id].values()) if it.id in sizes else None,
            }
            for it in description.brokers
        ],
    }


@app.command()
def health(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = OutputFormat.table
) -> None:
    """Check the health of all partitions.

    Exits with 1 if a partition has no leader or a replica is not in sync. A replica that a
    reassignment adds need not be in sync.
    """

    async def work(client: KafkaClient) -> tuple[int, bool, list[dict[str, Any]]]:
        all_topics = await topics.list_topics(client)
        ongoing = await reassignments.list_reassignments(client)
        problems = cluster.find_partition_problems(all_topics, ongoing)
        adds_replicas = any(it.adding for it in ongoing.values())
        return (
            sum(len(topic.partitions) for topic in all_topics),
            adds_replicas,
            [
                {
                    "topic": it.topic,
                    "partition": it.partition,
                    "problem": it.kind,
                    "leader": it.leader,
                    "isr": list(it.isr),
                    "replicas": list(it.replicas),
                }
                for it in problems
            ],
        )

    partitions, adds_replicas, problems = call_brokers(bootstrap, command_config, work)
    if output is not OutputFormat.table:
        print_document({"healthy": not problems, "partitions": partitions, "problems": problems}, output)
    elif problems:
        columns = {"topic": "TOPIC", "partition": "PARTITION", "problem": "PROBLEM", "leader": "LEADER"}
        print_rows(problems, {**columns, "isr": "ISR", "replicas": "REPLICAS"}, output)
    else:
        more = ", except those that are being added" if adds_replicas else ""
        subject = "the partition has" if partitions == 1 else f"all {partitions} partitions have"
        print(f"{subject} a leader and all replicas in sync{more}")
    if problems:
        raise typer.Exit(ExitCode.failed)


@app.command()
def drain(
    broker: BrokerId,
    throttle: Throttle = None,
    watch: Watch = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Move all partitions off a broker.

    The broker keeps serving until the other replicas are in sync. Then the broker can be stopped,
    and `ottla cluster unregister` removes its registration.
    """
    rate = parse_rate(throttle)

    async def work(client: KafkaClient) -> None:
        await _check_registered(client, broker)
        inputs = await read_reassignment_inputs(client)
        try:
            moves = drain_brokers(inputs.partitions, inputs.brokers, {broker}, registered=inputs.registered)
        except ImpossibleAssignment as error:
            raise CommandError(ExitCode.failed, f"broker {broker} cannot be drained: {error}") from error
        if dry_run or output is not OutputFormat.table:
            print_plan(moves, rate, output)
        else:
            print(describe_moves(moves, rate) if moves else f"broker {broker} has no replicas")
        if moves and not dry_run:
            await execute_moves(client, inputs, moves, rate, watch)

    call_brokers(bootstrap, command_config, work)


@app.command()
def unregister(
    broker: BrokerId,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Remove the registration of a broker.

    The broker must be drained and stopped for good.
    """

    async def work(client: KafkaClient) -> None:
        await _check_registered(client, broker)
        inputs = await read_reassignment_inputs(client)
        if replicas := sum(broker in it.replicas for it in inputs.partitions):
            count, command = format_count(replicas, "replica"), f"ottla cluster drain {broker} --watch"
            raise CommandError(ExitCode.failed, f"broker {broker} has {count}; move them off first: {command}")
        if broker in inputs.broker_ids:
            raise CommandError(ExitCode.failed, f"broker {broker} is running; stop it first")
        if not dry_run:
            await cluster.unregister_broker(client, broker)
        print(f"broker {broker} {'would be' if dry_run else 'is'} unregistered")

    call_brokers(bootstrap, command_config, work)


async def _check_registered(client: KafkaClient, broker: int) -> None:
    """Raises CommandError if no broker has this id."""
    ids = [it.id for it in (await cluster.describe_cluster(client, include_fenced=True)).brokers]
    if broker not in ids:
        raise CommandError(
            ExitCode.not_found, f"there is no broker {broker}; registered brokers: {', '.join(map(str, ids))}"
        )


app.command()(metadata)
app.command()(recover)
