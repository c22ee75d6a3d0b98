"""`ottla cluster drain`: takes every partition off a broker, so that it can be stopped for good; `ottla cluster unregister`: forgets it then."""

from typing import Annotated

import typer

from ottla_operator.brokers import cluster
from ottla_operator.brokers import placing as seen
from ottla_operator.brokers.link import Link
from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exits import Exit, Failure, run
from ottla_operator.cli.moving import DryRun, Throttle, Watch, carry_out, in_words, rate, show_plan
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.figures import counted
from ottla_operator.plan.reassign import Impossible
from ottla_operator.plan.reassign import drain as drained

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
            placing = await seen.observe(link)
            try:
                moves = drained(placing.partitions, placing.brokers, {broker})
            except Impossible as error:
                raise Failure(Exit.failed, f"broker {broker} cannot be drained: {error}") from error
            if dry_run or output is not Format.table:
                show_plan(moves, limit, output)
            else:
                print(in_words(moves, limit) if moves else f"broker {broker} holds nothing")
            if moves and not dry_run:
                await carry_out(link, placing, moves, limit, watch)

    run(work())


def unregister(
    broker: Id, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None
) -> None:
    async def work() -> None:
        async with link_to(bootstrap, command_config) as link:
            await _known(link, broker)
            placing = await seen.observe(link)
            held = sum(broker in it.replicas for it in placing.partitions)
            if held:
                raise Failure(
                    Exit.failed,
                    f"broker {broker} holds {counted(held, 'replica')}; move them off first: ottla cluster drain {broker} --watch",
                )
            if broker in placing.ids:
                raise Failure(Exit.failed, f"broker {broker} is running; stop it first")
            if not dry_run:
                await cluster.unregister(link, broker)
            print(f"broker {broker} {'would be' if dry_run else 'is'} forgotten")

    run(work())


async def _known(link: Link, broker: int) -> None:
    ids = [it.id for it in (await cluster.describe_all(link)).brokers]
    if broker not in ids:
        raise Failure(
            Exit.not_found,
            f"there is no broker {broker}; there {'is' if len(ids) == 1 else 'are'} {', '.join(map(str, ids))}",
        )
