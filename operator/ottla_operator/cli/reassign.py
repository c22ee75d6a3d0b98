"""`ottla topics reassign`: partitions to other brokers, or to another number of replicas."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
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
from ottla_operator.formatting import format_count
from ottla_operator.kafka import reassignment_inputs as seen
from ottla_operator.kafka import reassignments
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs
from ottla_operator.plan import reassignment_file
from ottla_operator.plan.moves import Move, apply_moves, moves_between
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor, spread_replicas

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
                placing = await seen.read_reassignment_inputs(link)
                moves = _planned(placing, plan) if plan else _decided(placing, named, to, replicas)
                if dry_run or output is not Format.table:
                    show_plan(moves, limit, output)
                else:
                    print(in_words(moves, limit))
                if moves and not dry_run:
                    await carry_out(link, placing, moves, limit, watch)

    run_command(work())


def _planned(placing: ReassignmentInputs, file: Path) -> Sequence[Move]:
    try:
        wanted = reassignment_file.parse_plan(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise CommandError(ExitCode.not_found, f"{file}: {error.strerror}") from error
    except (reassignment_file.InvalidPlan, UnicodeDecodeError) as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    there = {(it.topic, it.partition): it for it in placing.partitions}
    unknown = sorted(set(wanted) - set(there))
    if unknown:
        raise CommandError(
            ExitCode.not_found, "\n".join(f"{file}: there is no partition {topic}-{it}" for topic, it in unknown)
        )
    _known(placing, (broker for replicas in wanted.values() for broker in replicas), str(file))
    before = list(there.values())
    after = [
        Move(it.topic, it.partition, it.replicas, wanted[place], it.leader, it.bytes)
        for place, it in there.items()
        if place in wanted
    ]
    return moves_between(before, apply_moves(before, after))


def _decided(placing: ReassignmentInputs, named: Sequence[str], to: str | None, factor: int | None) -> Sequence[Move]:
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
            after = apply_moves(after, change_replication_factor(after, brokers, {it.topic for it in after}, factor))
        if factor is None or to is not None:
            after = apply_moves(after, spread_replicas(after, brokers, leaving))
    except ImpossibleAssignment as error:
        raise CommandError(ExitCode.failed, str(error)) from error
    return moves_between(before, after)


def _ids(text: str) -> set[int]:
    found = text.split(",")
    if not all(it.strip().isdigit() for it in found):
        raise typer.BadParameter(f"--to {text!r} is no list of brokers' ids; write 1,2,3")
    return {int(it) for it in found}


def _known(placing: ReassignmentInputs, ids: Iterable[int], where: str) -> None:
    """Replicas can only be copied to brokers that are up."""
    for it in ids:
        if it not in placing.broker_ids:
            raise CommandError(
                ExitCode.usage,
                f"{where}: {it} is no broker that is up; there {'is' if len(placing.broker_ids) == 1 else 'are'} {', '.join(map(str, placing.broker_ids))}",
            )


async def _cancel(link: KafkaClient, named: Sequence[str], dry_run: bool) -> None:
    moving = {
        place: it
        for place, it in (await reassignments.list_reassignments(link)).items()
        if not named or place[0] in named
    }
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
    await reassignments.cancel_reassignments(link, moving)
    await unthrottle(link, {topic for topic, _ in moving})
    print(f"{format_count(len(moving), 'partition')} cancelled: replicas are where they were")


async def _watch(link: KafkaClient) -> None:
    moving: dict[TopicPartition, tuple[int, ...]] = {
        place: it.target for place, it in (await reassignments.list_reassignments(link)).items()
    }
    if moving:
        await see_to_the_end(link, moving)
    else:
        await unthrottle(link, {it.topic for it in (await seen.read_reassignment_inputs(link)).partitions})
        print("nothing is moving")
