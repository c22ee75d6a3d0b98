"""`ottla groups`: list, describe, delete, reset-offsets."""

from typing import Annotated, Any

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import run_command
from ottla_operator.cli.offset_spec import OffsetSpec, parse_offset_spec
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.cli.output import emit, facts, show
from ottla_operator.kafka import cluster, groups, offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Consumer groups.", no_args_is_help=True)
    group.command("list", help="All groups.")(list_)
    group.command(help="One group: its members, how far they are, and their lag.")(describe)
    group.command(help="Forget groups and their offsets. They must have no members.")(delete)
    group.command("reset-offsets", help="Put a group elsewhere. It must have no members.")(reset_offsets)
    app.add_typer(group, name="groups")


def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = Format.table
) -> None:
    async def work() -> list[dict[str, Any]]:
        async with link_to(bootstrap, command_config) as link:
            found = await groups.list_groups(link, [it.id for it in (await cluster.describe_cluster(link)).brokers])
            return [{"group": it.id, "state": it.state, "protocol": it.protocol} for it in found]

    show(run_command(work()), {"group": "GROUP", "state": "STATE", "protocol": "PROTOCOL"}, output)


def describe(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    async def work() -> dict[str, Any]:
        async with link_to(bootstrap, command_config) as link:
            group, committed = await _one(link, name)
            ends = await _ends(link, committed)
            holder = {place: it for it in group.members for place in it.partitions}
            return {
                "group": name,
                "state": group.state,
                "assignor": group.assignor or None,
                "members": len(group.members),
                "lag": sum(max(0, ends[place] - offset) for place, offset in committed.items() if place in ends),
                "partitions": [
                    {
                        "topic": place[0],
                        "partition": place[1],
                        "committed": committed.get(place),
                        "end": ends.get(place),
                        "lag": max(0, ends[place] - committed[place]) if place in committed and place in ends else None,
                        "client": f"{holder[place].client_id}@{holder[place].host}" if place in holder else None,
                        "member": holder[place].id if place in holder else None,
                    }
                    for place in sorted({*committed, *holder})
                ],
            }

    found = run_command(work())
    if output is not Format.table:
        emit(found, output)
        return
    facts({it: found[it] for it in ("group", "state", "assignor", "members", "lag")})
    print()
    show(
        found["partitions"],
        {it: it.upper() for it in ("topic", "partition", "committed", "end", "lag", "client")},
        output,
    )


def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Ids of groups.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    if not yes:
        typer.confirm(f"Forget {', '.join(names)} and all offsets?", abort=True)

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            for name in names:
                await groups.delete_group(link, name)
                print(f"group {name} deleted")

    run_command(work())


def reset_offsets(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="beginning, end, an offset, +N or -N from where it is, a time (2026-05-01T12:00), or how long ago (2h).",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", help="Only this topic; may be given several times. Without it, all topics of the group."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    wanted = parse_offset_spec(to)

    async def work() -> list[dict[str, Any]]:
        async with link_to(bootstrap, command_config) as link:
            before = await groups.list_group_offsets(link, name)
            after = await _places(link, wanted, before, set(topic or {it[0] for it in before}), name)
            if not dry_run:
                await groups.alter_group_offsets(link, name, after)
            return [
                {"topic": it[0], "partition": it[1], "from": before.get(it), "to": after[it]} for it in sorted(after)
            ]

    show(run_command(work()), {"topic": "TOPIC", "partition": "PARTITION", "from": "FROM", "to": "TO"}, output)


async def _places(
    link: KafkaClient, wanted: OffsetSpec, before: dict[TopicPartition, int], names: set[str], group: str
) -> dict[TopicPartition, int]:
    if not names:
        raise KafkaError(
            ErrorCode.group_id_not_found, f"group {group!r} has no offsets; name the topics to put it to with --topic"
        )
    found = await topics.describe_topics(link, names)
    if missing := names - set(found):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"there is no topic {', '.join(map(repr, sorted(missing)))}"
        )
    starts = await offsets.list_offsets(link, found.values(), offsets.EARLIEST)
    ends = await offsets.list_offsets(link, found.values(), offsets.LATEST)
    times = await offsets.list_offsets(link, found.values(), wanted.time_ms) if wanted.time_ms is not None else {}
    return {
        place: wanted.offset(starts[place], ends[place], before.get(place), times.get(place))
        for place in ends
        if place in starts
    }


async def _one(link: KafkaClient, name: str) -> tuple[groups.GroupDescription, dict[TopicPartition, int]]:
    group, committed = await groups.describe_group(link, name), await groups.list_group_offsets(link, name)
    if group.state == "Dead" and not committed:
        raise KafkaError(ErrorCode.group_id_not_found, f"there is no group {name!r}")
    return group, committed


async def _ends(link: KafkaClient, committed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = await topics.describe_topics(link, {topic for topic, _ in committed})
    return await offsets.list_offsets(link, found.values(), offsets.LATEST)
