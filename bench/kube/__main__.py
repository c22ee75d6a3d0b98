"""`python -m bench.kube [LINE…]`: measure the operator. The exit code is 1 if a value is above its
maximum. The lines `ready`, `roll` and `stall` run nodes and need root.
"""

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from bench import machine
from bench.kube import nodes, topics
from bench.kube.lines import LINES
from bench.lines import Line

SESSIONS = {"topics": topics.measure, "nodes": nodes.measure}


def main() -> int:
    lines = _select_lines(_parse_arguments().lines)
    console = Console(width=None if sys.stdout.isatty() else 140)
    for key, fact in machine.describe().items():
        console.print(f"[bold]{key}[/]: {fact}", highlight=False)
    began = time.monotonic()
    measured: dict[str, float] = {}
    for session, measure in SESSIONS.items():
        for name, value in measure() if any(line in LINES[session] for line in lines) else ():
            measured[name] = value
            console.print(f"  {name}: {value:.2f}, after {time.monotonic() - began:.0f} s", highlight=False)
    console.print(_build_table(lines, measured))
    return 0 if all(measured[line.name] <= at_most(line) for line in lines) else 1


def at_most(line: Line) -> float:
    assert line.at_most is not None
    return line.at_most


def _build_table(lines: list[Line], measured: dict[str, float]) -> Table:
    table = Table("line", "measured", "at most", "what")
    for line in lines:
        value = measured[line.name]
        color = "green" if value <= at_most(line) else "red"
        table.add_row(line.name, f"[{color}]{value:.1f} {line.unit}[/]", f"{at_most(line):g} {line.unit}", line.what)
    return table


def _select_lines(names: list[str]) -> list[Line]:
    known = {line.name: line for lines in LINES.values() for line in lines}
    if unknown := set(names) - known.keys():
        raise SystemExit(f"unknown line {', '.join(sorted(unknown))}; known lines: {', '.join(known)}")
    return [line for line in known.values() if not names or line.name in names]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kube", description=__doc__)
    parser.add_argument(
        "lines",
        nargs="*",
        metavar="LINE",
        help=f"all if none is given: {', '.join(line.name for lines in LINES.values() for line in lines)}",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
