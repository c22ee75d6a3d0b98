"""`ottla topics elect`: preferred replicas lead again; or, where nobody in sync is left, one that is not."""

from typing import Annotated, Any

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.cli.moving import DryRun
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format
from ottla_operator.cli.output import show
from ottla_operator.formatting import format_count
from ottla_operator.kafka import elections, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.elections import ElectionType

HELP = """Let partitions be led by their preferred replica, the first one, where it is in sync.

With --unclean, partitions that nobody leads get a leader from the replicas that live, in sync or not: records that only the others have are lost."""


def elect(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITION]…", help="Topics, or single partitions: orders, orders:3.", show_default=False
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All topics, those of the brokers too.")] = False,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Take any replica that lives, where nobody leads.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    if bool(names) == every:
        raise typer.BadParameter("name topics, or give --all")
    wanted = [_named(it) for it in names or []]
    election = ElectionType.unclean if unclean else ElectionType.preferred

    async def work() -> list[elections.ElectionResult]:
        async with link_to(bootstrap, command_config) as link:
            found = await _chosen(link, wanted)
            needed = set(elections.find_partitions_to_elect(found, election))
            if wanted:
                needed = {
                    it for it in needed if any(it[0] == name and index in (None, it[1]) for name, index in wanted)
                }
            if not needed:
                print(
                    "nothing to elect: "
                    + (
                        "every partition has a leader"
                        if unclean
                        else "preferred replicas lead wherever they are in sync"
                    )
                )
                return []
            if dry_run or (unclean and not yes):
                _show(
                    [(topic, it) for topic in found for it in topic.partitions if (topic.name, it.index) in needed],
                    election,
                )
            if dry_run:
                return []
            if unclean and not yes:
                typer.confirm(
                    f"Records that only the other replicas of {format_count(len(needed), 'partition')} have are lost. Go on?",
                    abort=True,
                )
            return await elections.elect_leaders(link, election, needed)

    outcomes = run_command(work())
    for it in outcomes:
        if it.error:
            print(f"{it.topic}-{it.partition}: {it.error}")
    if outcomes:
        print(f"{format_count(sum(not it.error for it in outcomes), 'leader')} elected")
    if any(it.error for it in outcomes):
        raise typer.Exit(ExitCode.failed)


async def _chosen(link: KafkaClient, wanted: list[tuple[str, int | None]]) -> list[topics.TopicDescription]:
    if not wanted:
        return await topics.list_topics(link)
    found = await topics.describe_topics(link, dict.fromkeys(name for name, _ in wanted))
    for name, index in wanted:
        if name not in found:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        if index is not None and index >= len(found[name].partitions):
            raise CommandError(
                ExitCode.not_found,
                f"topic {name!r} has no partition {index}; it has 0 to {len(found[name].partitions) - 1}",
            )
    return list(found.values())


def _named(text: str) -> tuple[str, int | None]:
    name, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not number.isdigit():
        raise typer.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:PARTITION; write orders or orders:3")
    return name, int(number)


def _show(partitions: list[tuple[topics.TopicDescription, topics.PartitionInfo]], election: ElectionType) -> None:
    rows: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "partition": it.index,
            "leader": it.leader if it.leader >= 0 else "none",
            "next": it.replicas[0]
            if election is ElectionType.preferred
            else f"one of {', '.join(map(str, _alive(it))) or 'none'}",
            "isr": it.isr,
        }
        for topic, it in partitions
    ]
    show(
        rows,
        {"topic": "TOPIC", "partition": "PARTITION", "leader": "LEADER", "next": "NEXT", "isr": "ISR"},
        Format.table,
    )


def _alive(it: topics.PartitionInfo) -> list[int]:
    return [broker for broker in it.replicas if broker not in it.offline_replicas]
