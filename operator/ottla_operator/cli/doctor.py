"""`ottla doctor`."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla_operator.cli.command_config import read_security
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import CommandConfig, Output, OutputFormat, new_app
from ottla_operator.cli.output import print_document
from ottla_operator.doctor.brokers import examine_brokers
from ottla_operator.doctor.finding import Finding, Severity
from ottla_operator.doctor.kubernetes import examine_kubernetes
from ottla_operator.doctor.machine import examine_java, examine_machine
from ottla_operator.formatting import format_count
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.local.home import default_home
from ottla_operator.plan.broker_processes import plan_broker_processes
from ottla_operator.resources.cluster import Cluster

app = new_app()

STYLES: Final = {
    Severity.good: "green",
    Severity.warning: "yellow",
    Severity.problem: "red",
    Severity.skipped: "dim",
}


@app.command()
def doctor(
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR|FILE", help="YAML for `ottla up`, whose ports are examined."),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "-b", envvar="OTTLA_BOOTSTRAP", metavar="HOST:PORT,…", help="Addresses of some brokers."
        ),
    ] = None,
    command_config: CommandConfig = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder for data and logs. Default: .ottla.", envvar="OTTLA_HOME")
    ] = None,
    output: Output = OutputFormat.table,
) -> None:
    """Diagnose this machine, the brokers and Kubernetes.

    Each problem is printed with its impact and the next step. Exits with 1 if there is a problem.
    """
    security = read_security(command_config)
    try:
        clusters = [Cluster.parse(it.data) for it in read_files(inputs or []) if it.kind == "Cluster"]
    except InvalidFiles as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    folder = home or default_home()
    plans = plan_broker_processes(clusters, folder)

    async def examine() -> list[Finding]:
        found = [*examine_machine(folder, plans), await examine_java()]
        if bootstrap is None:
            found.append(Finding("brokers", "access", Severity.skipped, "--bootstrap names the brokers to examine"))
        else:
            found += await examine_brokers(bootstrap, security)
        return found + await examine_kubernetes()

    try:
        findings = asyncio.run(examine())
    except ValueError as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    if output is OutputFormat.table:
        _print(findings)
    else:
        print_document([asdict(it) | {"severity": str(it.severity)} for it in findings], output)
    if any(it.severity is Severity.problem for it in findings):
        raise typer.Exit(ExitCode.failed)


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    width = max(len(it.subject) for it in findings)
    for area in dict.fromkeys(it.area for it in findings):
        console.print(Text(area, "bold"))
        for finding in [it for it in findings if it.area == area]:
            line = Text(f"  {finding.severity:<8} ", STYLES[finding.severity])
            console.print(line.append(f"{finding.subject:<{width}}  {finding.observed}", ""))
            if finding.impact:
                console.print(f"           {'':<{width}}  {finding.impact}", markup=False)
            if finding.next_step:
                console.print(Text(f"           {'':<{width}}  → {finding.next_step}", "bold"))
    problems, warnings = (
        sum(it.severity is severity for it in findings) for severity in (Severity.problem, Severity.warning)
    )
    console.print(f"{format_count(problems, 'problem')}, {format_count(warnings, 'warning')}")
