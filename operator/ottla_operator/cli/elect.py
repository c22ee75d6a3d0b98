"""`ottla topics elect`."""

from typing import Annotated, Any

import typer

from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, AllTopics, Bootstrap, CommandConfig, DryRun, OutputFormat, Yes
from ottla_operator.cli.output import print_rows
from ottla_operator.formatting import format_count
from ottla_operator.kafka import elections, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.elections import ElectionType


def elect(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITION]", help="Topics or partitions, such as orders or orders:3.", show_default=False
        ),
    ] = None,
    all_topics: AllTopics = False,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect a live replica of partitions without a leader, in sync or not.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Elect preferred leaders.

    The preferred leader is the first replica of a partition, if it is in sync.

    With --unclean, partitions without a leader get one from their live replicas, in sync or not.
    Records that the new leader does not have are lost.
    """
    if bool(names) == all_topics:
        raise typer.BadParameter("give topics, or --all")
    selected = [_parse_partition(it) for it in names or []]
    election = ElectionType.unclean if unclean else ElectionType.preferred

    async def work(client: KafkaClient) -> list[elections.ElectionResult]:
        chosen = await _find_topics(client, selected)
        to_elect = {
            (topic, index)
            for topic, index in elections.find_partitions_to_elect(chosen, election)
            if not selected or any(topic == name and partition in (None, index) for name, partition in selected)
        }
        if not to_elect:
            subject = "selected partition" if selected else "partition"
            reason = (
                f"every {subject} has a leader"
                if unclean
                else f"every {subject} is led by its preferred replica, if in sync"
            )
            print(f"nothing to elect: {reason}")
            return []
        if dry_run or (unclean and not yes):
            _print_candidates(
                [(topic, it) for topic in chosen for it in topic.partitions if (topic.name, it.index) in to_elect],
                election,
            )
        if dry_run:
            return []
        if unclean and not yes:
            partitions = format_count(len(to_elect), "partition")
            typer.confirm(f"Records of {partitions} that the new leaders do not have are lost. Continue?", abort=True)
        return await elections.elect_leaders(client, election, to_elect)

    results = call_brokers(bootstrap, command_config, work)
    for result in results:
        if result.error:
            print(f"{result.topic}-{result.partition}: {result.error}")
    if results:
        print(f"{format_count(sum(not it.error for it in results), 'leader')} elected")
    if any(it.error for it in results):
        raise typer.Exit(ExitCode.failed)


async def _find_topics(client: KafkaClient, selected: list[tuple[str, int | None]]) -> list[topics.TopicDescription]:
    """The topics of the selected partitions; all topics if none are selected. Raises KafkaError for
    an unknown topic, CommandError for an unknown partition.
    """
    if not selected:
        return await topics.list_topics(client)
    found = await topics.require_topics(client, [name for name, _ in selected])
    for name, index in selected:
        last = len(found[name].partitions) - 1
        if index is not None and index > last:
            raise CommandError(ExitCode.not_found, f"topic {name!r} has no partition {index}; it has 0 to {last}")
    return list(found.values())


def _parse_partition(text: str) -> tuple[str, int | None]:
    """Topic and partition of TOPIC:PARTITION; None as the partition of TOPIC, for all. Raises
    typer.BadParameter.
    """
    name, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not number.isdigit():
        raise typer.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:PARTITION, such as orders or orders:3")
    return name, int(number)


def _print_candidates(
    partitions: list[tuple[topics.TopicDescription, topics.PartitionInfo]], election: ElectionType
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "partition": it.index,
            "leader": it.leader if it.leader >= 0 else "none",
            "next": it.replicas[0]
            if election is ElectionType.preferred
            else f"one of {', '.join(map(str, _live_replicas(it))) or 'none'}",
            "isr": it.isr,
        }
        for topic, it in partitions
    ]
    headings = {"topic": "TOPIC", "partition": "PARTITION", "leader": "LEADER", "next": "NEXT", "isr": "ISR"}
    print_rows(rows, headings, OutputFormat.table)


def _live_replicas(partition: topics.PartitionInfo) -> list[int]:
    return [broker for broker in partition.replicas if broker not in partition.offline_replicas]
