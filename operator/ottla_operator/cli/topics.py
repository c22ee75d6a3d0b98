"""`ottla topics`: list, create, alter, delete; and what other files add."""

from typing import Annotated, Any

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli import elect, reassign
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.describe import Name, describe_topic, one_topic
from ottla_operator.cli.exit_codes import run_command
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output, pairs
from ottla_operator.cli.output import show
from ottla_operator.kafka import cluster, log_dirs, offsets, topics

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="A topic setting, such as retention.ms=60000; may be given several times.",
    ),
]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Topics.", no_args_is_help=True)
    group.command("list", help="All topics.")(list_)
    group.command("describe", help="One topic: leaders, replicas, what is moving, offsets and settings.")(
        describe_topic
    )
    group.command(help="Make a topic.")(create)
    group.command(help="Add partitions, set settings, take settings off.")(alter)
    group.command(help="Delete a topic with all its records.")(delete)
    group.command(help=reassign.HELP)(reassign.reassign)
    group.command(help=elect.HELP)(elect.elect)
    app.add_typer(group, name="topics")


def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
    internal: Annotated[bool, typer.Option("--internal", help="Also those that brokers keep for themselves.")] = False,
) -> None:
    async def work() -> list[dict[str, Any]]:
        async with link_to(bootstrap, command_config) as link:
            found = [
                it
                for it in await topics.list_topics(link)
                if internal or not (it.is_internal or it.name.startswith("__"))
            ]
            ends = await offsets.list_reachable_offsets(link, found, offsets.LATEST)
            starts = await offsets.list_reachable_offsets(link, found, offsets.EARLIEST)
            brokers = [it.id for it in (await cluster.describe_cluster(link)).brokers]
            sizes = log_dirs.sum_by_topic(await log_dirs.describe_replica_sizes(link, brokers))
            return [
                {
                    "name": it.name,
                    "partitions": len(it.partitions),
                    "replicas": it.replication_factor,
                    "records": sum(
                        ends[place] - starts.get(place, 0)
                        for p in it.partitions
                        if (place := (it.name, p.index)) in ends
                    ),
                    "bytes": sizes.get(it.name, 0),
                    "id": str(it.id) if it.id else None,
                    "internal": it.is_internal,
                }
                for it in found
            ]

    show(
        run_command(work()),
        {"name": "TOPIC", "partitions": "PARTITIONS", "replicas": "REPLICAS", "records": "RECORDS", "bytes": "BYTES"},
        output,
    )


def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; without it, the brokers' num.partitions.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas", "-r", min=1, help="Copies of each; without it, the brokers' default.replication.factor."
        ),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing when there is such a topic.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    settings = pairs(config or [], "setting")

    async def work() -> bool:
        async with link_to(bootstrap, command_config) as link:
            try:
                await topics.create_topic(link, name, partitions or -1, replicas or -1, settings)
            except KafkaError as error:
                if if_not_exists and error.code == ErrorCode.topic_already_exists:
                    return False
                raise
            return True

    print(f"topic {name} made" if run_command(work()) else f"topic {name} is there already")


def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="How many there shall be in all; they never become fewer."),
    ] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="A setting to take off the topic; may be given several times."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    settings = pairs(config or [], "setting")
    if partitions is None and not settings and not unset:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --unset")

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            await one_topic(link, name)
            if settings or unset:
                await topics.alter_topic_config(link, name, settings, unset or [])
            if partitions is not None:
                await topics.create_partitions(link, name, partitions)

    run_command(work())
    print(f"topic {name} changed")


def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    if not yes:
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True)

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            for name in names:
                await one_topic(link, name)
                await topics.delete_topic(link, name)
                print(f"topic {name} deleted")

    run_command(work())
