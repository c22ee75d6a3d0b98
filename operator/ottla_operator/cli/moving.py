"""What the commands that move partitions have in common: showing a plan, carrying it out, and watching it to its end."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.moving_bar import bar
from ottla_operator.cli.options import Format
from ottla_operator.cli.output import emit, show
from ottla_operator.formatting import format_count, format_duration, format_size
from ottla_operator.kafka import cluster, elections, reassignments, throttle
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.progress import ReassignmentProgress, measure_progress
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs
from ottla_operator.plan import reassignment_file
from ottla_operator.plan.moves import Move, estimate_cost

POLL_S = 1.0

Throttle = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="Bytes per second that each broker may take in, and give out, for this: 50M."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show how far it is, and return when it is done.")]


def rate(text: str | None) -> int | None:
    """Bytes per second. typer.BadParameter names what is allowed."""
    if text is None:
        return None
    from ottla_operator.resources.common import parse_quantity  # it brings the models of all resources

    try:
        found = parse_quantity(text)
    except ValueError:
        found = 0
    if found < 1:
        raise typer.BadParameter(f"--throttle {text!r} is no rate; write bytes per second, such as 50M or 10Mi")
    return int(found)


def show_plan(moves: Sequence[Move], limit: int | None, output: Format) -> None:
    """The moves and what they cost. JSON and YAML also hold the plan and the way back in the form of Kafka's own tool."""
    found = estimate_cost(moves)
    if output is not Format.table:
        emit(
            {
                "moves": [_row(it) for it in moves],
                "copies": found.replicas,
                "bytes": found.bytes,
                "throttle": limit,
                "seconds": found.duration_s(limit) if limit else None,
                "plan": reassignment_file.forward_plan(moves),
                "rollback": reassignment_file.rollback_plan(moves),
            },
            output,
        )
        return
    if moves:
        columns = {"topic": "TOPIC", "partition": "PARTITION", "before": "FROM", "after": "TO", "adding": "COPIED TO"}
        show([_row(it) for it in moves], {**columns, "bytes": "BYTES"}, output)
        print()
    print(in_words(moves, limit))


def in_words(moves: Sequence[Move], limit: int | None) -> str:
    """What a plan costs, in a line."""
    found = estimate_cost(moves)
    if not moves:
        return "nothing to move: all is as it should be"
    said = f"{format_count(found.partitions, 'partition')} to change, {format_count(found.replicas, 'replica')} to copy, {format_size(found.bytes)}"
    if limit is None or not found.bytes:
        return said
    return f"{said}: {format_duration(found.duration_s(limit))} at {format_size(limit)}/s for each broker"


async def carry_out(
    link: KafkaClient, placing: ReassignmentInputs, moves: Sequence[Move], limit: int | None, watch: bool
) -> None:
    """Starts the moves, and with `watch` sees them to their end. Failure when one cannot be made."""
    for it in moves:
        if (it.topic, it.partition) in placing.reassignments:
            raise CommandError(
                ExitCode.failed,
                f"{it.topic}-{it.partition} is being moved already; wait for it (ottla topics reassign --watch) or cancel it first (--cancel)",
            )
        if it.adding and it.leader < 0:
            raise CommandError(
                ExitCode.failed,
                f"{it.topic}-{it.partition} has no leader, so that nothing can be copied; bring one of its brokers back first: "
                f"{', '.join(map(str, it.before))}",
            )
    if limit is not None:
        await throttle.set_throttle(link, moves, limit, placing.broker_ids)
    await reassignments.reassign_partitions(link, {(it.topic, it.partition): it.after for it in moves})
    if watch:
        await see_to_the_end(link, {(it.topic, it.partition): it.after for it in moves})
    elif limit is not None:
        print("under way; `ottla topics reassign --watch` shows how far it is, and takes the throttle off at its end")
    else:
        print("under way; `ottla topics reassign --watch` shows how far it is")


async def see_to_the_end(link: KafkaClient, wanted: dict[TopicPartition, tuple[int, ...]]) -> None:
    """Shows how far these partitions are until they have arrived; then their preferred replicas lead, and the throttle is taken off."""
    with bar() as shown:
        while True:
            now = await measure_progress(link, wanted)
            shown(now)
            if not now.unfinished:
                break
            await asyncio.sleep(POLL_S)
    await elections.elect_preferred_leaders(link, wanted)
    await unthrottle(link, {topic for topic, _ in wanted})
    if now.misplaced:
        topic, partition = now.misplaced[0]
        raise CommandError(
            ExitCode.failed,
            f"{format_count(len(now.misplaced), 'partition')} of {len(wanted)} did not arrive, {topic}-{partition} first: somebody has cancelled or changed the move",
        )
    print(_arrived(now))


async def unthrottle(link: KafkaClient, topics: Collection[str]) -> None:
    """Takes the throttle off, unless something else is still moving."""
    if not await reassignments.list_reassignments(link):
        brokers = [it.id for it in (await cluster.describe_cluster(link)).brokers]
        await throttle.remove_throttle(link, brokers, topics)


def _arrived(now: ReassignmentProgress) -> str:
    return f"{format_count(now.partitions, 'partition')} {'has' if now.partitions == 1 else 'have'} arrived"


def _row(it: Move) -> dict[str, Any]:
    return {
        "topic": it.topic,
        "partition": it.partition,
        "before": list(it.before),
        "after": list(it.after),
        "adding": list(it.adding),
        "removing": list(it.removing),
        "bytes": it.bytes * len(it.adding),
    }
