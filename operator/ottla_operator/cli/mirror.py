"""`ottla mirror`: status, failover, of mirrors into the cluster that is asked."""

from typing import Annotated, Any

import typer

from ottla_operator.cli.command_config import link_to
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Format, Output
from ottla_operator.cli.output import emit, show
from ottla_operator.kafka import mirrors
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan import mirror as plan

COLUMNS = {
    "mirror": "MIRROR",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "state": "STATE",
    "end": "END",
    "sourceEnd": "SOURCE",
    "lag": "LAG",
    "lagSeconds": "SECONDS",
    "lagBytes": "BYTES",
    "silentSeconds": "SILENT",
    "why": "",
}
FIELDS = (*COLUMNS, "diverging", "sourceEpoch")


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Mirrors of other clusters.", no_args_is_help=True)
    group.command(help="How far the copies are, by partition.")(status)
    group.command(help="End copying and open the copies for writing.")(failover)
    app.add_typer(group, name="mirror")


def status(
    name: Annotated[str | None, typer.Argument(metavar="MIRROR", help="Its name; all without one.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    async def work() -> list[dict[str, Any]]:
        async with link_to(bootstrap, command_config) as link:
            wanted = await mirrors.list_mirrors(link) if name is None else [await _existing(link, name)]
            return [row for it in wanted for row in await _rows(link, it)]

    show(run_command(work()), COLUMNS, output)


def failover(
    name: Annotated[str, typer.Argument(metavar="MIRROR", help="Its name.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be left behind.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = Format.table,
) -> None:
    """Where a Mirror resource describes it, edit its role instead: one that says otherwise is Stalled until it says the same."""

    async def look() -> list[plan.ObservedMirrorPartition]:
        async with link_to(bootstrap, command_config) as link:
            return await mirrors.describe_mirrored_partitions(link, await _existing(link, name))

    async def do() -> None:
        async with link_to(bootstrap, command_config) as link:
            await mirrors.alter_mirror(link, name, {plan.ROLE: plan.FAILED_OVER})

    seen = run_command(look())
    missing = sum(max(it.lag, 0) for it in seen)
    unknown = sum(it.lag == plan.UNKNOWN for it in seen)
    if dry_run or not yes:
        show([_row(name, it) for it in seen], COLUMNS, output)
    said = f"{missing} records that were seen at the source would be left behind"
    if unknown:
        said += f", and {unknown} partitions have not seen their source"
    if silent := [
        it.silent_seconds for it in seen if it.state == plan.UNREACHABLE and it.silent_seconds != plan.UNKNOWN
    ]:
        said += f"; {len(silent)} partitions have not heard of it for up to {max(silent):.0f} seconds, and what it has had since is not known"
    if dry_run:
        if output is Format.table:
            print(said)
        return
    if not yes:
        typer.confirm(f"{said}. Copying ends, and the copies are opened for writing. Go on?", abort=True)
    run_command(do())
    if output is Format.table:
        print(f"mirror {name} fails over; `ottla mirror status {name}` tells from which offsets on the copies are open")
    else:
        emit({"mirror": name, "role": plan.FAILED_OVER, "missing": missing, "unknown": unknown}, output)


async def _existing(link: KafkaClient, name: str) -> str:
    if name not in (found := await mirrors.list_mirrors(link)):
        there = f"; there is {', '.join(found)}" if found else ""
        raise CommandError(ExitCode.not_found, f"there is no mirror {name!r}{there}")
    return name


async def _rows(link: KafkaClient, mirror: str) -> list[dict[str, Any]]:
    """Partitions that are copied, topics that are not, and what is wrong with the whole."""
    itself = await mirrors.describe_mirror(link, mirror)
    rows = [_row(mirror, seen) for seen in await mirrors.describe_mirrored_partitions(link, mirror)]
    rows += [_said(mirror, topic, plan.REFUSED, why) for topic, why in sorted(itself.refused_topics.items())]
    return rows + ([_said(mirror, None, plan.UNREACHABLE, itself.source_error)] if itself.source_error else [])


def _said(mirror: str, topic: str | None, state: str, why: str) -> dict[str, Any]:
    return dict.fromkeys(FIELDS) | {"mirror": mirror, "topic": topic, "state": state, "why": why}


def _row(mirror: str, seen: plan.ObservedMirrorPartition) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return None if value == plan.UNKNOWN else value

    return {
        "mirror": mirror,
        "topic": seen.topic,
        "partition": seen.partition,
        "state": seen.state,
        "end": known(seen.end),
        "sourceEnd": known(seen.source_end),
        "lag": known(seen.lag),
        "lagSeconds": known(seen.lag_seconds),
        "lagBytes": known(seen.lag_bytes),
        "silentSeconds": known(seen.silent_seconds),
        "diverging": seen.diverging_records,
        "sourceEpoch": known(seen.source_epoch),
        "why": seen.reason,
    }
