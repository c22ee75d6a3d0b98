"""`ottla users`: users that log in by SCRAM."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla_broker.security.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MECHANISMS, ScramMechanism
from ottla_broker.wire.sasl import MIN_ITERATIONS
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat, Yes, new_app
from ottla_operator.cli.output import print_rows
from ottla_operator.formatting import format_count
from ottla_operator.kafka import acls, scram
from ottla_operator.kafka.client import KafkaClient

app = new_app("Manage users with passwords (SCRAM).")

DEFAULT_MECHANISMS: Final = ("SCRAM-SHA-512",)
Name = Annotated[str, typer.Argument(metavar="USER", help="Name that clients log in with.")]
_MECHANISM_HELP: Final = f"{' or '.join(MECHANISMS)}. Repeatable. Default: "
NewMechanism = Annotated[
    list[str] | None,
    typer.Option("--mechanism", "-m", metavar="MECHANISM", help=f"{_MECHANISM_HELP}SCRAM-SHA-512."),
]
ExistingMechanism = Annotated[
    list[str] | None,
    typer.Option("--mechanism", "-m", metavar="MECHANISM", help=f"{_MECHANISM_HELP}every one that the user has."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="File with the password; - reads standard input."),
]
PasswordEnv = Annotated[
    str | None, typer.Option("--password-env", metavar="NAME", help="Environment variable with the password.")
]
Iterations = Annotated[
    int, typer.Option("--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="Iterations of the password's hash.")
]


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, output: Output = OutputFormat.table
) -> None:
    """List users and their mechanisms."""
    users = call_brokers(bootstrap, command_config, scram.describe_scram_users)
    rows = [
        {"user": user, "mechanism": mechanism.title, "iterations": iterations}
        for user, credentials in sorted(users.items())
        for mechanism, iterations in sorted(credentials.items())
    ]
    print_rows(rows, {"user": "USER", "mechanism": "MECHANISM", "iterations": "ITERATIONS"}, output)


@app.command()
def create(
    name: Name,
    mechanism: NewMechanism = None,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Create a user.

    The password is asked for, or read from a file or an environment variable. Brokers store a hash
    of it.
    """
    mechanisms = _read_mechanisms(mechanism or DEFAULT_MECHANISMS)
    password = read_password(password_file, password_env)

    async def work(client: KafkaClient) -> None:
        present = (await scram.describe_scram_users(client)).get(name, {})
        if conflicts := [it.title for it in mechanisms if it in present]:
            message = f"user {name!r} has a password for {', '.join(conflicts)}; change it with `ottla users alter`"
            raise CommandError(ExitCode.failed, message)
        await _alter(client, [scram.SetPassword(name, it, password, iterations) for it in mechanisms])

    call_brokers(bootstrap, command_config, work)
    print(f"user {name} created for {_format_mechanisms(mechanisms)}")


@app.command()
def alter(
    name: Name,
    mechanism: ExistingMechanism = None,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Change a user's password.

    Open connections are not closed.
    """
    chosen = _read_mechanisms(mechanism or ())
    password = read_password(password_file, password_env)

    async def work(client: KafkaClient) -> list[ScramMechanism]:
        present = await _find_user(client, name)
        mechanisms = chosen or sorted(present)
        await _alter(client, [scram.SetPassword(name, it, password, iterations) for it in mechanisms])
        return mechanisms

    changed = call_brokers(bootstrap, command_config, work)
    print(f"password of user {name} changed for {_format_mechanisms(changed)}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="USER", help="Names of users.")],
    mechanism: Annotated[
        list[str] | None, typer.Option("--mechanism", "-m", help="Only these credentials. Repeatable. Default: all.")
    ] = None,
    with_acls: Annotated[bool, typer.Option("--acls", help="Remove the users' access rules too.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete users' credentials."""
    chosen = _read_mechanisms(mechanism or ())
    if not yes:
        typer.confirm(f"Delete {', '.join(names)}?", abort=True)

    async def work(client: KafkaClient) -> None:
        for name in names:
            present = await _find_user(client, name)
            removed = chosen or sorted(present)
            kept = [it for it in sorted(present) if it not in removed]
            await _alter(client, [scram.RemoveCredential(name, it) for it in removed])
            if kept:
                print(f"user {name}: {_format_mechanisms(removed)} deleted, {_format_mechanisms(kept)} kept")
            else:
                print(f"user {name} deleted")
            if with_acls:
                rules = await acls.delete_acls(client, [acls.filter_for_principal(f"User:{name}")])
                print(f"{format_count(rules, 'access rule')} of user {name} removed")

    call_brokers(bootstrap, command_config, work)


def read_password(file: Path | None, variable: str | None) -> str:
    """The password from a file, an environment variable or a prompt. Raises CommandError."""
    if file is not None and variable is not None:
        raise CommandError(ExitCode.usage, "--password-file and --password-env exclude each other")
    if variable is not None:
        password = os.environ.get(variable, "")
        source = f"environment variable {variable}"
    elif file is not None:
        password, source = _read_file(file), str(file)
    elif sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
        source = "the input"
    else:
        raise CommandError(ExitCode.usage, "no password: give --password-file or --password-env, or use a terminal")
    if not password:
        raise CommandError(ExitCode.usage, f"{source} has no password")
    return password


def _read_file(file: Path) -> str:
    """Content without the line end that editors add; of standard input, the first line. Raises
    CommandError.
    """
    if str(file) == "-":
        return sys.stdin.readline().rstrip("\r\n")
    try:
        return file.read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CommandError(ExitCode.usage, f"{file}: {reason}") from error


def _read_mechanisms(names: list[str] | tuple[str, ...]) -> list[ScramMechanism]:
    if unknown := [it for it in names if it.upper() not in MECHANISMS]:
        raise typer.BadParameter(f"{unknown[0]!r} is not a mechanism; allowed: {', '.join(MECHANISMS)}")
    return list(dict.fromkeys(MECHANISMS[it.upper()] for it in names))


def _format_mechanisms(mechanisms: Iterable[ScramMechanism]) -> str:
    return ", ".join(it.title for it in mechanisms)


async def _find_user(client: KafkaClient, name: str) -> dict[ScramMechanism, int]:
    found = await scram.describe_scram_users(client)
    if name not in found:
        raise CommandError(ExitCode.not_found, f"user {name!r} has no password")
    return found[name]


async def _alter(client: KafkaClient, changes: list[scram.SetPassword | scram.RemoveCredential]) -> None:
    for error in (await scram.alter_scram_users(client, changes)).values():
        raise error
