"""`ottla broker`: only its help is here; `main` hands everything else to `python -m ottla_broker`."""

import os
import sys
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("broker", help="Start one broker.")(broker)


def broker(
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A properties file with settings under Kafka's names; may be given several times.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; wins over files.")
    ] = None,
) -> None:
    options = [part for file in config or [] for part in ("--config", file)] + [
        part for pair in set_ or [] for part in ("--set", pair)
    ]
    os.execv(sys.executable, [sys.executable, "-m", "ottla_broker", *options])
