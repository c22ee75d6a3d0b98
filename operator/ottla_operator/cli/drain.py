"""`ottla cluster drain`: takes every partition off a broker, so that it can be stopped for good; `ottla cluster unregister`: forgets it then."""

from typing import Annotated

import typer

from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.cli.moving import DryRun, Throttle, Watch, carry_out, in_words, rate, show_plan
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.formatting import format_count
from ottla_operator.kafka import cluster
from ottla_operator.kafka import reassignment_inputs as seen
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.reassign import ImpossibleAssignment
from ottla_operator.plan.reassign import drain_brokers as drained

Id = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="The broker's id.")]

HELP_DRAIN = """Move all partitions off a broker, and nothing else. The broker goes on serving until they have arrived elsewhere.

Then it can be stopped, and `ottla cluster unregister` forgets it."""
HELP_UNREGISTER = "Forget a broker that was drained and has been stopped for good."


def drain(
    broker: Id,
    throttle: Throttle = None,
    watch: Watch = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    limit = rate(throttle)

    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            await _known(link, broker)
            placing = await seen.read_reassignment_inputs(link)
            try:
                moves = drained(placing.partitions, placing.brokers, {broker})
            except ImpossibleAssignment as error:
                raise CommandError(ExitCode.failed, f"broker {broker} cannot be drained: {error}") from error
            if dry_run or output is not Format.table:
                show_plan(moves, limit, output)
            else:
                print(in_words(moves, limit) if moves else f"broker {broker} holds nothing")
            if moves and not dry_run:
                await carry_out(link, placing, moves, limit, watch)

    run_command(work())


def unregister(
    broker: Id, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None
) -> None:
    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            await _known(link, broker)
            placing = await seen.read_reassignment_inputs(link)
            held = sum(broker in it.replicas for it in placing.partitions)
            if held:
                raise CommandError(
                    ExitCode.failed,
                    f"broker {broker} holds {format_count(held, 'replica')}; move them off first: ottla cluster drain {broker} --watch",
                )
            if broker in placing.broker_ids:
                raise CommandError(ExitCode.failed, f"broker {broker} is running; stop it first")
            if not dry_run:
                await cluster.unregister_broker(link, broker)
            print(f"broker {broker} {'would be' if dry_run else 'is'} forgotten")

    run_command(work())


async def _known(link: KafkaClient, broker: int) -> None:
    ids = [it.id for it in (await cluster.describe_cluster_with_fenced_brokers(link)).brokers]
    if broker not in ids:
        raise CommandError(
            ExitCode.not_found,
            f"there is no broker {broker}; there {'is' if len(ids) == 1 else 'are'} {', '.join(map(str, ids))}",
        )
