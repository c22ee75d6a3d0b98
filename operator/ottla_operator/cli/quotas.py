"""`ottla quotas`."""

from typing import Annotated, Any, Final

import typer

from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandConfig,
    Output,
    OutputFormat,
    new_app,
    parse_pairs,
)
from ottla_operator.cli.output import print_rows
from ottla_operator.kafka import quotas
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.quotas import Entity, QuotaChange, format_entity

app = new_app("Manage quotas of users, client ids and addresses.")

DEFAULT_NAME: Final = "<default>"
UserOption = Annotated[
    str | None, typer.Option("--user", "-u", metavar="NAME", help="User; <default> for users without a quota.")
]
ClientId = Annotated[
    str | None,
    typer.Option("--client-id", metavar="ID", help="Client id; <default> for others. Alone, or with --user."),
]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Client address; <default> for others.")]


@app.command("list")
def list_(
    user: UserOption = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """List quotas, of all entities or of those named."""
    named = dict(_read_entity(user, client_id, ip))
    found = call_brokers(bootstrap, command_config, quotas.describe_quotas)
    rows: list[dict[str, Any]] = [
        {"entity": format_entity(entity), "quota": key, "value": value, "entries": dict(entity)}
        for entity, values in sorted(found.items(), key=lambda it: format_entity(it[0]))
        for key, value in sorted(values.items())
        if named.items() <= dict(entity).items()
    ]
    print_rows(rows, {"entity": "ENTITY", "quota": "QUOTA", "value": "VALUE"}, output)


@app.command()
def alter(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Quotas to set, such as producer_byte_rate=1000000."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Quota to remove. Repeatable.")
    ] = None,
    user: UserOption = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Set and remove quotas of one entity.

    Example: ottla quotas alter producer_byte_rate=1000000 --user alice
    """
    entity = _read_entity(user, client_id, ip)
    if not entity:
        raise typer.BadParameter("name the entity: --user, --client-id or --ip")
    pairs = parse_pairs(settings or [], "quota")
    values: dict[str, float | None] = {key: _parse_value(key, text) for key, text in pairs.items()}
    values |= dict.fromkeys(unset or [])
    if not values:
        raise typer.BadParameter("nothing to alter: give NAME=VALUE or --unset")

    async def work(client: KafkaClient) -> None:
        for error in (await quotas.alter_quotas(client, [QuotaChange(entity, values)])).values():
            raise error

    call_brokers(bootstrap, command_config, work)
    print(f"quotas of {format_entity(entity)} altered")


def _read_entity(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    """The entity that the options name, as the protocol has it. Raises CommandError."""
    given = {"client-id": client_id, "ip": ip, "user": user}
    if ip is not None and (user, client_id) != (None, None):
        raise CommandError(ExitCode.usage, "--ip excludes --user and --client-id")
    return tuple((type_, None if name == DEFAULT_NAME else name) for type_, name in given.items() if name is not None)


def _parse_value(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}={text}: a quota is a number") from None
