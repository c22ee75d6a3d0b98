"""Plans of `ottla topics reassign` and `ottla cluster drain`: print, execute, watch the
progress.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import OutputFormat
from ottla_operator.cli.output import print_document, print_rows
from ottla_operator.cli.progress_bar import reassignment_progress
from ottla_operator.formatting import format_count, format_duration, format_size
from ottla_operator.kafka import cluster, elections, reassignments, throttle
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs
from ottla_operator.plan import reassignment_file
from ottla_operator.plan.moves import Move, estimate_cost
from ottla_operator.resources.common import parse_quantity

POLL_INTERVAL_S: Final = 1.0

Throttle = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES", help="Maximum bytes per second that each broker receives, and that it sends, such as 50M."
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Show the progress to the end, then elect preferred leaders and remove the throttle.",
    ),
]


def parse_rate(text: str | None) -> int | None:
    """Bytes per second of --throttle; None if it is not given. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        rate = parse_quantity(text)
    except ValueError:
        rate = 0
    if rate < 1:
        raise typer.BadParameter(f"--throttle {text!r} is not a rate; expected bytes per second, such as 50M or 10Mi")
    return int(rate)


def print_plan(moves: Sequence[Move], rate: int | None, output: OutputFormat) -> None:
    """Prints moves and their cost; as JSON or YAML also the plan and its rollback in the format of
    Kafka's tool.
    """
    cost = estimate_cost(moves)
    if output is not OutputFormat.table:
        print_document(
            {
                "moves": [_row(move) for move in moves],
                "copies": cost.replicas,
                "bytes": cost.bytes,
                "throttle": rate,
                "seconds": cost.duration_s(rate) if rate else None,
                "plan": reassignment_file.forward_plan(moves),
                "rollback": reassignment_file.rollback_plan(moves),
            },
            output,
        )
        return
    if moves:
        columns = {"topic": "TOPIC", "partition": "PARTITION", "before": "FROM", "after": "TO", "adding": "COPY TO"}
        print_rows([_row(move) for move in moves], {**columns, "bytes": "BYTES"}, output)
        print()
    print(describe_moves(moves, rate))


def describe_moves(moves: Sequence[Move], rate: int | None) -> str:
    """The cost of a plan in one line."""
    cost = estimate_cost(moves)
    if not moves:
        return "nothing to reassign"
    partitions, replicas = format_count(cost.partitions, "partition"), format_count(cost.replicas, "replica")
    text = f"{partitions} to change, {replicas} to copy, {format_size(cost.bytes)}"
    if rate is None or not cost.bytes:
        return text
    return f"{text}: {format_duration(cost.duration_s(rate))} at {format_size(rate)}/s for each broker"


async def execute_moves(
    client: KafkaClient, inputs: ReassignmentInputs, moves: Sequence[Move], rate: int | None, watch: bool
) -> None:
    """Starts the moves, and with `watch` waits until they are complete. Raises CommandError if one
    is impossible.
    """
    for move in moves:
        name = f"{move.topic}-{move.partition}"
        if (move.topic, move.partition) in inputs.reassignments:
            raise CommandError(
                ExitCode.failed,
                (
                    f"{name} is already being reassigned; wait for it (ottla topics reassign --watch) or "
                    "cancel it (--cancel)"
                ),
            )
        if move.adding and move.leader < 0:
            brokers = ", ".join(map(str, move.before))
            raise CommandError(
                ExitCode.failed, f"{name} has no leader to copy from; start one of its brokers first: {brokers}"
            )
    if rate is not None:
        await throttle.set_throttle(client, moves, rate, inputs.broker_ids)
    targets = {(move.topic, move.partition): move.after for move in moves}
    await reassignments.reassign_partitions(client, targets)
    if watch:
        await watch_reassignments(client, targets)
    else:
        removal = " and removes the throttle at the end" if rate is not None else ""
        print(f"reassignment started; `ottla topics reassign --watch` shows the progress{removal}")


async def watch_reassignments(client: KafkaClient, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
    """Shows the progress until the reassignments are complete, then elects preferred leaders and
    removes the throttle.

    Raises CommandError if a partition does not have its target replicas.
    """
    with reassignment_progress() as show:
        while True:
            progress = await reassignments.measure_progress(client, targets)
            show(progress)
            if not progress.unfinished:
                break
            await asyncio.sleep(POLL_INTERVAL_S)
    await elections.elect_preferred_leaders(client, targets)
    await remove_throttle(client, {topic for topic, _ in targets})
    if progress.misplaced:
        topic, partition = progress.misplaced[0]
        raise CommandError(
            ExitCode.failed,
            f"{len(progress.misplaced)} of {format_count(len(targets), 'partition')} not reassigned, such as "
            f"{topic}-{partition}: the reassignment was cancelled or changed",
        )
    print(f"{format_count(progress.partitions, 'partition')} reassigned")


async def remove_throttle(client: KafkaClient, topics: Collection[str]) -> None:
    """Removes the throttle, unless there are other reassignments."""
    if not await reassignments.list_reassignments(client):
        brokers = await cluster.list_broker_ids(client)
        await throttle.remove_throttle(client, brokers, topics)


def _row(move: Move) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "before": list(move.before),
        "after": list(move.after),
        "adding": list(move.adding),
        "removing": list(move.removing),
        "bytes": move.bytes * len(move.adding),
    }
