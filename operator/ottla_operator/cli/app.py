"""The commands of `ottla`. `main` runs `broker`. Each other command is in the module of its name,
which is imported when the command is run.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ottla_broker.hot_paths import hot_paths_build
from ottla_operator.cli.exit_codes import CommandError, print_error
from ottla_operator.cli.options import new_app

COMMANDS: Final = {
    "up": "Run the resources in YAML files on this machine.",
    "diff": "Show what resources in YAML files would change.",
    "topics": "Manage topics.",
    "groups": "Manage consumer groups.",
    "transactions": "Manage transactions.",
    "share": "Manage share groups.",
    "produce": "Write records to topics.",
    "consume": "Print records of topics.",
    "users": "Manage users with passwords (SCRAM).",
    "acls": "Manage access rules.",
    "quotas": "Manage quotas of users, client ids and addresses.",
    "schema": "Manage schemas.",
    "cluster": "Inspect or recover the cluster, and remove brokers.",
    "partitions": "List partitions.",
    "top": "Show what brokers, topics, groups and pipelines are doing.",
    "bench": "Measure how fast brokers take and return records.",
    "doctor": "Diagnose this machine, the brokers and Kubernetes.",
    "mirror": "Manage mirrors of other clusters.",
    "pipeline": "Validate, run, test and compare pipelines.",
    "broker": "Run a broker.",
    "operator": "Run the Kubernetes operator.",
}
HELP: Final = """Event streaming with Kafka's protocol: brokers, topics and pipelines from YAML.

Brokers are addressed by --bootstrap or $OTTLA_BOOTSTRAP, by default 127.0.0.1:9092. TLS and SASL are configured by
--command-config or $OTTLA_COMMAND_CONFIG.

Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 not found, 4 unreachable."""


class LazyGroup(TyperGroup):
    """Lists the commands without importing their modules. The parameters are those of click's
    Group.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS or cmd_name == "broker":  # `main` runs the broker
            return None
        module = import_module(f"ottla_operator.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def run(arguments: Sequence[str], program: str = "ottla") -> None:
    """Runs a command and exits with its code, or with 0 if the reader of its output has closed the
    pipe. Each error is one line on stderr, after a usage hint if the arguments are invalid.
    `program`: the name of the program in usage texts.
    """
    app = new_app(HELP, cls=LazyGroup, add_completion=True)
    app.callback()(_root)
    try:
        app(args=list(arguments), prog_name=program)
    except CommandError as error:
        print_error(error)
        sys.exit(error.code)
    except BrokenPipeError:  # the reader, such as `| head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"ottla {metadata.version('ottla')} ({hot_paths_build()})")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
