"""`python -m bench.cluster [LINE…]`: measures both sides by turns; exit code 1 when a line is missed."""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from bench import machine, programs, report
from bench.cluster.lines import LINES
from bench.cluster.sessions import QUICK, SESSIONS, Amounts, new_cluster
from bench.lines import Line

SIDES = ("ottla", "kafka")


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 180)
    lines = _chosen(arguments.lines)
    names = [line.name for line in lines]
    about = machine.about() | {"brokers": "3 each; replication factor 3, min.insync.replicas 2, acks=all"}
    for what, fact in about.items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    measured: dict[str, dict[str, list[float]]] = {side: {} for side in arguments.sides}
    began = time.monotonic()
    for session in SESSIONS:
        wanted = [name for name in names if name.startswith(session.lines)]
        turns = min(session.turns, arguments.repeat or (1 if arguments.quick else session.turns))
        for turn in range(turns if wanted else 0):
            for side in arguments.sides:
                heading = f"[bold]{side}[/], {', '.join(wanted)}, {turn + 1} of {turns}"
                console.print(f"{heading}, after {time.monotonic() - began:.0f} s", highlight=False)
                already = len(programs.commands)
                values = session.measure(new_cluster(side), wanted, QUICK if arguments.quick else Amounts())
                for name in wanted:
                    measured[side].setdefault(name, []).append(values[name])
                    console.print(f"  {name}: {values[name]:.3f}", highlight=False)
                for command in programs.commands[already:]:
                    console.print(f"  [dim]$ {command}[/]", highlight=False, soft_wrap=True)
    results = report.verdicts(lines, measured)
    report.show(console, results, max((len(v) for side in measured.values() for v in side.values()), default=0))
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(about, results, 3))
    report.save(arguments.json, about, programs.commands, measured, results)
    console.print(f"in {time.monotonic() - began:.0f} s; every value and command: {arguments.json}", highlight=False)
    return 1 if any(result.reached is False for result in results) else 0


def _chosen(names: list[str]) -> list[Line]:
    return [line for line in LINES if not names or line.name.startswith(tuple(names))]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"of: {', '.join(line.name for line in LINES)}")
    parser.add_argument("--quick", action="store_true", help="little load: shows that it works, not how fast it is")
    parser.add_argument("--repeat", type=int, metavar="TIMES", help="at most so many turns")
    parser.add_argument("--side", dest="sides", action="append", choices=SIDES, help="only this side (both, by turns)")
    parser.add_argument("--json", type=Path, default=Path("build/bench-cluster.json"), metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the machine and the table, for a page")
    arguments = parser.parse_args()
    arguments.sides = arguments.sides or list(SIDES)
    for name in arguments.lines:
        if not any(line.name.startswith(name) for line in LINES):
            parser.error(f"no line is called {name}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
