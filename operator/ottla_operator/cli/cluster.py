"""`ottla cluster`: health; and what other files add."""

from typing import Any

import typer

from ottla_operator.cli import drain, metadata
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.describe import describe_cluster
from ottla_operator.cli.exit_codes import ExitCode, run_command
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.cli.output import emit, show
from ottla_operator.kafka import cluster, reassignments, topics


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="The cluster as a whole.", no_args_is_help=True)
    group.command("describe", help="Its id, controller and brokers, with what each holds and leads.")(describe_cluster)
    group.command(help="Whether all partitions have a leader and all replicas are in sync; exit code 1 when not.")(
        health
    )
    group.command(help=metadata.HELP)(metadata.metadata)
    group.command(help=drain.HELP_DRAIN)(drain.drain)
    group.command(help=drain.HELP_UNREGISTER)(drain.unregister)
    app.add_typer(group, name="cluster")


def health(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = Format.table
) -> None:
    async def work() -> tuple[int, list[dict[str, Any]]]:
        async with link_to(bootstrap, command_config) as link:
            every = await topics.list_topics(link)
            found = cluster.find_partition_problems(every, await reassignments.list_reassignments(link))
            return sum(len(it.partitions) for it in every), [
                {
                    "topic": it.topic,
                    "partition": it.partition,
                    "what": it.kind,
                    "leader": it.leader,
                    "isr": list(it.isr),
                    "replicas": list(it.replicas),
                }
                for it in found
            ]

    partitions, found = run_command(work())
    if output is not Format.table:
        emit({"healthy": not found, "partitions": partitions, "ailments": found}, output)
    elif found:
        show(found, {it: it.upper() for it in ("topic", "partition", "what", "leader", "isr", "replicas")}, output)
    else:
        print(f"all {partitions} partitions have a leader and all their replicas in sync")
    if found:
        raise typer.Exit(ExitCode.failed)
