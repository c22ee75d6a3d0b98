"""`python -m bench.kube [LINE…]`: measures the operator; exit code 1 when a line is missed. Lines with nodes take root."""

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from bench import machine
from bench.kube import nodes, topics
from bench.kube.lines import LINES, Line

SESSIONS = {"topics": topics.measure, "nodes": nodes.measure}


def main() -> int:
    lines = _chosen(_arguments().lines)
    console = Console(width=None if sys.stdout.isatty() else 140)
    for what, fact in machine.about().items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    began = time.monotonic()
    measured: dict[str, float] = {}
    for session in dict.fromkeys(line.session for line in lines):
        for name, value in SESSIONS[session]():
            measured[name] = value
            console.print(f"  {name}: {value:.2f}, after {time.monotonic() - began:.0f} s", highlight=False)
    console.print(_table(lines, measured))
    return 0 if all(measured[line.name] <= line.most for line in lines) else 1


def _table(lines: list[Line], measured: dict[str, float]) -> Table:
    table = Table("line", "measured", "at most", "what")
    for line in lines:
        value = measured[line.name]
        reached = "green" if value <= line.most else "red"
        table.add_row(line.name, f"[{reached}]{value:.1f} {line.unit}[/]", f"{line.most:g} {line.unit}", line.what)
    return table


def _chosen(names: list[str]) -> list[Line]:
    known = {line.name: line for line in LINES}
    if unknown := set(names) - known.keys():
        raise SystemExit(f"no line is named {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [line for line in LINES if not names or line.name in names]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kube", description=__doc__)
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"of: {', '.join(line.name for line in LINES)}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
