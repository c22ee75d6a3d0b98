"""What the commands that move partitions have in common: showing a plan, carrying it out, and watching it to its end."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer

from ottla_operator.brokers import cluster, elections, reassignments, throttle
from ottla_operator.brokers.link import Link
from ottla_operator.brokers.offsets import Place
from ottla_operator.brokers.placing import Placing
from ottla_operator.brokers.progress import Progress, progress
from ottla_operator.cli.exits import Exit, Failure
from ottla_operator.cli.moving_bar import bar
from ottla_operator.cli.options import Format
from ottla_operator.cli.output import emit, show
from ottla_operator.figures import counted, size_text, time_text
from ottla_operator.plan import reassignment_file
from ottla_operator.plan.moves import Move, cost

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
    from ottla_operator.resources.common import quantity  # it brings the models of all resources

    try:
        found = quantity(text)
    except ValueError:
        found = 0
    if found < 1:
        raise typer.BadParameter(f"--throttle {text!r} is no rate; write bytes per second, such as 50M or 10Mi")
    return int(found)


def show_plan(moves: Sequence[Move], limit: int | None, output: Format) -> None:
    """The moves and what they cost. JSON and YAML also hold the plan and the way back in the form of Kafka's own tool."""
    found = cost(moves)
    if output is not Format.table:
        emit(
            {
                "moves": [_row(it) for it in moves],
                "copies": found.replicas,
                "bytes": found.bytes,
                "throttle": limit,
                "seconds": found.seconds(limit) if limit else None,
                "plan": reassignment_file.after(moves),
                "rollback": reassignment_file.before(moves),
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
    found = cost(moves)
    if not moves:
        return "nothing to move: all is as it should be"
    said = f"{counted(found.partitions, 'partition')} to change, {counted(found.replicas, 'replica')} to copy, {size_text(found.bytes)}"
    if limit is None or not found.bytes:
        return said
    return f"{said}: {time_text(found.seconds(limit))} at {size_text(limit)}/s for each broker"


async def carry_out(link: Link, placing: Placing, moves: Sequence[Move], limit: int | None, watch: bool) -> None:
    """Starts the moves, and with `watch` sees them to their end. Failure when one cannot be made."""
    for it in moves:
        if (it.topic, it.partition) in placing.ongoing:
            raise Failure(
                Exit.failed,
                f"{it.topic}-{it.partition} is being moved already; wait for it (ottla topics reassign --watch) or cancel it first (--cancel)",
            )
        if it.adding and it.leader < 0:
            raise Failure(
                Exit.failed,
                f"{it.topic}-{it.partition} has no leader, so that nothing can be copied; bring one of its brokers back first: "
                f"{', '.join(map(str, it.before))}",
            )
    if limit is not None:
        await throttle.put(link, moves, limit, placing.ids)
    await reassignments.reassign(link, {(it.topic, it.partition): it.after for it in moves})
    if watch:
        await see_to_the_end(link, {(it.topic, it.partition): it.after for it in moves})
    elif limit is not None:
        print("under way; `ottla topics reassign --watch` shows how far it is, and takes the throttle off at its end")
    else:
        print("under way; `ottla topics reassign --watch` shows how far it is")


async def see_to_the_end(link: Link, wanted: dict[Place, tuple[int, ...]]) -> None:
    """Shows how far these partitions are until they have arrived; then their preferred replicas lead, and the throttle is taken off."""
    with bar() as shown:
        while True:
            now = await progress(link, wanted)
            shown(now)
            if not now.moving:
                break
            await asyncio.sleep(POLL_S)
    await elections.prefer(link, wanted)
    await unthrottle(link, {topic for topic, _ in wanted})
    if now.elsewhere:
        topic, partition = now.elsewhere[0]
        raise Failure(
            Exit.failed,
            f"{counted(len(now.elsewhere), 'partition')} of {len(wanted)} did not arrive, {topic}-{partition} first: somebody has cancelled or changed the move",
        )
    print(_arrived(now))


async def unthrottle(link: Link, topics: Collection[str]) -> None:
    """Takes the throttle off, unless something else is still moving."""
    if not await reassignments.ongoing(link):
        brokers = [it.id for it in (await cluster.describe(link)).brokers]
        await throttle.take_off(link, brokers, topics)


def _arrived(now: Progress) -> str:
    return f"{counted(now.partitions, 'partition')} {'has' if now.partitions == 1 else 'have'} arrived"


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
