"""`ottla topics reassign`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    AllTopics,
    Bootstrap,
    CommandConfig,
    DryRun,
    Output,
    OutputFormat,
)
from ottla_operator.cli.output import print_rows
from ottla_operator.cli.reassignment import (
    Throttle,
    Watch,
    describe_moves,
    execute_moves,
    parse_rate,
    print_plan,
    remove_throttle,
    watch_reassignments,
)
from ottla_operator.formatting import format_count
from ottla_operator.kafka import reassignments
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs, read_reassignment_inputs
from ottla_operator.plan import reassignment_file
from ottla_operator.plan.moves import Move, apply_moves, moves_between
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor, spread_replicas


def reassign(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)
    ] = None,
    all_topics: AllTopics = False,
    to: Annotated[str | None, typer.Option(metavar="ID,…", help="Brokers that will have all replicas.")] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", "-r", min=1, help="New replication factor.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="File with a plan, in the format of kafka-reassign-partitions.")
    ] = None,
    throttle: Throttle = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel ongoing reassignments: of the given topics, or of all topics.")
    ] = False,
    watch: Watch = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Reassign partitions to brokers.

    Partitions move to other brokers, or get another replication factor.

    Without --to, --replicas and --plan, the partitions are spread evenly over all brokers.
    Partitions stay available: a replica is removed when the new ones are in sync. --watch alone
    shows the progress of ongoing reassignments.
    """
    names, rate = topics or [], parse_rate(throttle)
    selections = [bool(names), all_topics, plan is not None]
    if sum(selections) > 1:
        raise typer.BadParameter("topics, --all and --plan exclude each other")
    if plan is not None and (to or replicas):
        raise typer.BadParameter("--plan excludes --to and --replicas")
    if cancel and (plan or to or replicas or rate):
        raise typer.BadParameter("--cancel excludes --plan, --to, --replicas and --throttle")
    if not (any(selections) or cancel or watch):
        raise typer.BadParameter("nothing to reassign: give topics, --all, --plan FILE, --cancel or --watch")

    async def work(client: KafkaClient) -> None:
        if cancel:
            await _cancel(client, names, dry_run)
        elif not any(selections):
            await _watch_ongoing(client)
        else:
            inputs = await read_reassignment_inputs(client)
            moves = _moves_of_plan(inputs, plan) if plan else _decide_moves(inputs, names, to, replicas)
            if dry_run or output is not OutputFormat.table:
                print_plan(moves, rate, output)
            else:
                print(describe_moves(moves, rate))
            if moves and not dry_run:
                await execute_moves(client, inputs, moves, rate, watch)

    call_brokers(bootstrap, command_config, work)


def _moves_of_plan(inputs: ReassignmentInputs, file: Path) -> Sequence[Move]:
    """The moves that a plan in a file asks for. Raises CommandError."""
    try:
        targets = reassignment_file.parse_plan(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise CommandError(ExitCode.not_found, f"{file}: {error.strerror}") from error
    except (reassignment_file.InvalidPlan, UnicodeDecodeError) as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    current = {(it.topic, it.partition): it for it in inputs.partitions}
    if unknown := sorted(set(targets) - set(current)):
        raise CommandError(
            ExitCode.not_found, "\n".join(f"{file}: there is no partition {topic}-{it}" for topic, it in unknown)
        )
    _check_brokers_up(inputs, (broker for replicas in targets.values() for broker in replicas), str(file))
    before = list(current.values())
    moves = [
        Move(it.topic, it.partition, it.replicas, targets[partition], it.leader, it.bytes)
        for partition, it in current.items()
        if partition in targets
    ]
    return moves_between(before, apply_moves(before, moves))


def _decide_moves(
    inputs: ReassignmentInputs, names: Sequence[str], to: str | None, replication_factor: int | None
) -> Sequence[Move]:
    """The moves for --to and --replicas; for neither, those that spread the partitions evenly.
    `names`: topics, empty for all. Raises CommandError, KafkaError.
    """
    existing = {it.topic for it in inputs.partitions}
    for name in names:
        if name not in existing:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    before = [it for it in inputs.partitions if not names or it.topic in names]
    brokers, drained, registered = list(inputs.brokers), set[int](), inputs.registered
    if to is not None:
        ids = _parse_ids(to)
        _check_brokers_up(inputs, ids, "--to")
        brokers = [it for it in brokers if it.broker in ids]
        drained = {broker for it in before for broker in it.replicas} - ids
        registered = ()  # cells are formed from the named brokers only
    after = before
    try:
        if replication_factor is not None:
            topics = {it.topic for it in after}
            moves = change_replication_factor(after, brokers, topics, replication_factor, registered=registered)
            after = apply_moves(after, moves)
        if replication_factor is None or to is not None:
            after = apply_moves(after, spread_replicas(after, brokers, drained, registered=registered))
    except ImpossibleAssignment as error:
        raise CommandError(ExitCode.failed, str(error)) from error
    return moves_between(before, after)


def _parse_ids(text: str) -> set[int]:
    ids = text.split(",")
    if not all(it.strip().isdigit() for it in ids):
        raise typer.BadParameter(f"--to {text!r} is not a list of broker ids, such as 1,2,3")
    return {int(it) for it in ids}


def _check_brokers_up(inputs: ReassignmentInputs, ids: Iterable[int], where: str) -> None:
    for broker in ids:
        if broker not in inputs.broker_ids:
            up = ", ".join(map(str, inputs.broker_ids))
            raise CommandError(ExitCode.usage, f"{where}: broker {broker} is not up; brokers that are up: {up}")


async def _cancel(client: KafkaClient, names: Sequence[str], dry_run: bool) -> None:
    all_ongoing = await reassignments.list_reassignments(client)
    ongoing = {partition: it for partition, it in all_ongoing.items() if not names or partition[0] in names}
    if not ongoing:
        print(f"there are no reassignments{' of these topics' if names else ''}")
        return
    if dry_run:
        rows = [
            {"topic": topic, "partition": index, "adding": it.adding, "removing": it.removing}
            for (topic, index), it in sorted(ongoing.items())
        ]
        columns = {
            "topic": "TOPIC",
            "partition": "PARTITION",
            "adding": "CANCELS ADDING",
            "removing": "CANCELS REMOVING",
        }
        print_rows(rows, columns, OutputFormat.table)
        return
    await reassignments.cancel_reassignments(client, ongoing)
    await remove_throttle(client, {topic for topic, _ in ongoing})
    print(f"reassignment of {format_count(len(ongoing), 'partition')} cancelled; the previous replicas are restored")


async def _watch_ongoing(client: KafkaClient) -> None:
    """Watches all reassignments. If there are none, removes a throttle that an earlier one left."""
    targets = {partition: it.target for partition, it in (await reassignments.list_reassignments(client)).items()}
    if targets:
        await watch_reassignments(client, targets)
    else:
        inputs = await read_reassignment_inputs(client)
        await remove_throttle(client, {it.topic for it in inputs.partitions})
        print("there are no reassignments")
