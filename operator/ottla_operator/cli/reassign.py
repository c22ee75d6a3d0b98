"""`ottla topics reassign`: partitions to other brokers, or to another number of replicas."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.brokers import placing as seen
from ottla_operator.brokers import reassignments
from ottla_operator.brokers.link import Link
from ottla_operator.brokers.offsets import Place
from ottla_operator.brokers.placing import Placing
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exits import Exit, Failure, run
from ottla_operator.cli.moving import (
    DryRun,
    Throttle,
    Watch,
    carry_out,
    in_words,
    rate,
    see_to_the_end,
    show_plan,
    unthrottle,
)
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.cli.output import show
from ottla_operator.figures import counted
from ottla_operator.plan import reassignment_file
from ottla_operator.plan.moves import Move, applied, difference
from ottla_operator.plan.reassign import Impossible, resize, spread

HELP = """Move partitions to other brokers, or give them another number of replicas.

Without --to and --replicas, the topics' partitions are spread evenly over all brokers. Nothing is lost or stopped meanwhile: a replica goes when the new ones
have everything. --watch alone shows what is moving now."""


def reassign(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC…", help="Names of topics.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All topics, those of the brokers too.")] = False,
    to: Annotated[str | None, typer.Option(metavar="ID,…", help="The brokers that are to hold all replicas.")] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", min=1, help="How many each partition is to have.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A file as Kafka's kafka-reassign-partitions takes it, instead of all this.")
    ] = None,
    throttle: Throttle = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Take back what is moving, of these topics or of all.")
    ] = False,
    watch: Watch = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    named, limit = topics or [], rate(throttle)
    chosen = [bool(named), every, plan is not None]
    if sum(chosen) > 1:
        raise typer.BadParameter("topics, --all and --plan exclude each other: name one")
    if plan is not None and (to or replicas):
        raise typer.BadParameter("--plan says where replicas go: leave out --to and --replicas")
    if cancel and (plan or to or replicas or limit):
        raise typer.BadParameter("--cancel takes nothing but topics")
    if not (any(chosen) or cancel or watch):
        raise typer.BadParameter("nothing to move: name topics, --all or --plan FILE; or give --cancel or --watch")

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            if cancel:
                await _cancel(link, named, dry_run)
            elif not any(chosen):
                await _watch(link)
            else:
                placing = await seen.observe(link)
                moves = _planned(placing, plan) if plan else _decided(placing, named, to, replicas)
                if dry_run or output is not Format.table:
                    show_plan(moves, limit, output)
                else:
                    print(in_words(moves, limit))
                if moves and not dry_run:
                    await carry_out(link, placing, moves, limit, watch)

    run(work())


def _planned(placing: Placing, file: Path) -> Sequence[Move]:
    try:
        wanted = reassignment_file.read(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise Failure(Exit.not_found, f"{file}: {error.strerror}") from error
    except (reassignment_file.BadPlan, UnicodeDecodeError) as error:
        raise Failure(Exit.usage, str(error)) from error
    there = {(it.topic, it.partition): it for it in placing.partitions}
    unknown = sorted(set(wanted) - set(there))
    if unknown:
        raise Failure(Exit.not_found, "\n".join(f"{file}: there is no partition {topic}-{it}" for topic, it in unknown))
    _known(placing, (broker for replicas in wanted.values() for broker in replicas), str(file))
    before = list(there.values())
    after = [
        Move(it.topic, it.partition, it.replicas, wanted[place], it.leader, it.bytes)
        for place, it in there.items()
        if place in wanted
    ]
    return difference(before, applied(before, after))


def _decided(placing: Placing, named: Sequence[str], to: str | None, factor: int | None) -> Sequence[Move]:
    there = {it.topic for it in placing.partitions}
    for name in named:
        if name not in there:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    before = [it for it in placing.partitions if not named or it.topic in named]
    brokers, leaving = list(placing.brokers), set[int]()
    if to is not None:
        ids = _ids(to)
        _known(placing, ids, "--to")
        brokers = [it for it in brokers if it.broker in ids]
        leaving = {broker for it in before for broker in it.replicas} - ids
    after = before
    try:
        if factor is not None:
            after = applied(after, resize(after, brokers, {it.topic for it in after}, factor))
        if factor is None or to is not None:
            after = applied(after, spread(after, brokers, leaving))
    except Impossible as error:
        raise Failure(Exit.failed, str(error)) from error
    return difference(before, after)


def _ids(text: str) -> set[int]:
    found = text.split(",")
    if not all(it.strip().isdigit() for it in found):
        raise typer.BadParameter(f"--to {text!r} is no list of brokers' ids; write 1,2,3")
    return {int(it) for it in found}


def _known(placing: Placing, ids: Iterable[int], where: str) -> None:
    """Replicas can only be copied to brokers that are up."""
    for it in ids:
        if it not in placing.ids:
            raise Failure(
                Exit.usage,
                f"{where}: {it} is no broker that is up; there {'is' if len(placing.ids) == 1 else 'are'} {', '.join(map(str, placing.ids))}",
            )


async def _cancel(link: Link, named: Sequence[str], dry_run: bool) -> None:
    moving = {place: it for place, it in (await reassignments.ongoing(link)).items() if not named or place[0] in named}
    if not moving:
        print("nothing is moving")
        return
    if dry_run:
        rows = [
            {"topic": topic, "partition": index, "adding": it.adding, "removing": it.removing}
            for (topic, index), it in sorted(moving.items())
        ]
        show(
            rows,
            {"topic": "TOPIC", "partition": "PARTITION", "adding": "NO LONGER COPIED TO", "removing": "STAYS ON"},
            Format.table,
        )
        return
    await reassignments.cancel(link, moving)
    await unthrottle(link, {topic for topic, _ in moving})
    print(f"{counted(len(moving), 'partition')} cancelled: replicas are where they were")


async def _watch(link: Link) -> None:
    moving: dict[Place, tuple[int, ...]] = {
        place: it.target for place, it in (await reassignments.ongoing(link)).items()
    }
    if moving:
        await see_to_the_end(link, moving)
    else:
        await unthrottle(link, {it.topic for it in (await seen.observe(link)).partitions})
        print("nothing is moving")
