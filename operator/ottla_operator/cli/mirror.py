"""`ottla mirror`."""

from typing import Annotated, Any, Final

import typer

from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandConfig,
    DryRun,
    Output,
    OutputFormat,
    Yes,
    new_app,
)
from ottla_operator.cli.output import print_document, print_rows
from ottla_operator.formatting import format_count
from ottla_operator.kafka import mirrors
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan import mirror as plan

COLUMNS: Final = {
    "mirror": "MIRROR",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "state": "STATE",
    "end": "END",
    "sourceEnd": "SOURCE END",
    "lag": "LAG",
    "lagSeconds": "LAG (S)",
    "lagBytes": "LAG (BYTES)",
    "silentSeconds": "SILENT (S)",
    "reason": "REASON",
}
FIELDS: Final = (*COLUMNS, "diverging", "sourceEpoch")

app = new_app("Manage mirrors of other clusters.")


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="MIRROR", help="Name of the mirror. Default: all.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show state and lag of mirrored partitions."""

    async def work(client: KafkaClient) -> list[dict[str, Any]]:
        names = await mirrors.list_mirrors(client) if name is None else [await _check_exists(client, name)]
        return [row for it in names for row in await _rows(client, it)]

    print_rows(call_brokers(bootstrap, command_config, work), COLUMNS, output)


@app.command()
def failover(
    name: Annotated[str, typer.Argument(metavar="MIRROR", help="Name of the mirror.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Stop copying and make topics writable.

    If a Mirror resource declares the mirror, set its spec.role to FailedOver instead of using this
    command. After this command, the resource is Stalled until its role is FailedOver too.
    """

    async def observe(client: KafkaClient) -> list[plan.ObservedMirrorPartition]:
        return await mirrors.describe_mirrored_partitions(client, await _check_exists(client, name))

    partitions = call_brokers(bootstrap, command_config, observe)
    missing_count = sum(max(it.lag, 0) for it in partitions)
    unknown_count = sum(it.lag == plan.UNKNOWN for it in partitions)
    if dry_run or not yes:
        print_rows([_row(name, it) for it in partitions], COLUMNS, output)
    losses = _describe_losses(partitions, missing_count, unknown_count)
    if dry_run:
        if output is OutputFormat.table:
            print(losses)
        return
    if not yes:
        typer.confirm(f"{losses}. Stop copying and make the topics writable?", abort=True)
    role = {plan.ROLE: plan.FAILED_OVER}
    call_brokers(bootstrap, command_config, lambda client: mirrors.alter_mirror(client, name, role))
    if output is OutputFormat.table:
        print(f"mirror {name} is failing over; `ottla mirror status {name}` shows the first writable offsets")
    else:
        document = {"mirror": name, "role": plan.FAILED_OVER, "missing": missing_count, "unknown": unknown_count}
        print_document(document, output)


def _describe_losses(partitions: list[plan.ObservedMirrorPartition], missing_count: int, unknown_count: int) -> str:
    """Says how many records the target would not have after a failover (`missing_count`), of how
    many partitions the lag is unknown (`unknown_count`), and of how many the source does not
    respond.
    """
    text = f"{format_count(missing_count, 'record')} of the source {'is' if missing_count == 1 else 'are'} not copied"
    if unknown_count:
        text += f"; the lag of {format_count(unknown_count, 'partition')} is unknown"
    unreachable = [it for it in partitions if it.state == plan.UNREACHABLE and it.silent_seconds != plan.UNKNOWN]
    if unreachable:
        longest = max(it.silent_seconds for it in unreachable)
        text += f"; the source of {format_count(len(unreachable), 'partition')} has not responded for up to "
        text += f"{longest:.0f} seconds, and records written since are unknown"
    return text


async def _check_exists(client: KafkaClient, name: str) -> str:
    if name not in (found := await mirrors.list_mirrors(client)):
        existing = f"; mirrors: {', '.join(found)}" if found else ""
        raise CommandError(ExitCode.not_found, f"there is no mirror {name!r}{existing}")
    return name


async def _rows(client: KafkaClient, mirror: str) -> list[dict[str, Any]]:
    """Mirrored partitions, then refused topics, then the error of the source or target, if there is
    one.
    """
    state = await mirrors.describe_mirror(client, mirror)
    rows = [_row(mirror, it) for it in await mirrors.describe_mirrored_partitions(client, mirror)]
    rows += [
        _problem_row(mirror, topic, plan.REFUSED, reason) for topic, reason in sorted(state.refused_topics.items())
    ]
    errors = {plan.UNREACHABLE: state.source_error, plan.FAILED: state.target_error}
    return rows + [_problem_row(mirror, None, kind, error) for kind, error in errors.items() if error]


def _problem_row(mirror: str, topic: str | None, state: str, reason: str) -> dict[str, Any]:
    return dict.fromkeys(FIELDS) | {"mirror": mirror, "topic": topic, "state": state, "reason": reason}


def _row(mirror: str, partition: plan.ObservedMirrorPartition) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return None if value == plan.UNKNOWN else value

    return {
        "mirror": mirror,
        "topic": partition.topic,
        "partition": partition.partition,
        "state": partition.state,
        "end": known(partition.end),
        "sourceEnd": known(partition.source_end),
        "lag": known(partition.lag),
        "lagSeconds": known(partition.lag_seconds),
        "lagBytes": known(partition.lag_bytes),
        "silentSeconds": known(partition.silent_seconds),
        "diverging": partition.diverging_records,
        "sourceEpoch": known(partition.source_epoch),
        "reason": partition.reason,
    }
