"""A benchmark as a program: its words on the command line, the sides by turns, the table and the file."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console

from bench import machine, programs, report
from bench.lines import Line

Side = TypeVar("Side")
Amounts = TypeVar("Amounts")


@dataclass(frozen=True)
class Session(Generic[Side, Amounts]):
    """Lines that are measured together. `lines`: names that begin so belong to it. `turns`: how often each side goes through it."""

    lines: tuple[str, ...]
    turns: int
    measure: Callable[[Side, Sequence[str], Amounts], dict[str, float]]


@dataclass(frozen=True)
class Benchmark(Generic[Side, Amounts]):
    """`name`: of its module, and of its file in `build`. `about`: what a reader has to know beside the machine."""

    name: str
    lines: Sequence[Line]
    sides: Mapping[str, Side]
    sessions: Sequence[Session[Side, Amounts]]
    amounts: Amounts
    quick: Amounts
    about: Mapping[str, str]

    def chosen(self, names: Sequence[str]) -> list[Line]:
        """The lines of these names (a name also stands for those that begin with it), all without names. ValueError."""
        known = [line.name for line in self.lines]
        if unknown := [name for name in names if not any(it.startswith(name) for it in known)]:
            raise ValueError(f"no line is called {', '.join(unknown)}; there are: {', '.join(known)}")
        return [line for line in self.lines if not names or line.name.startswith(tuple(names))]


def main(benchmark: Benchmark[Side, Amounts]) -> int:
    """The exit code: 1 when a line is missed."""
    arguments = _arguments(benchmark)
    console = Console(width=None if sys.stdout.isatty() else 180)
    lines = benchmark.chosen(arguments.lines)
    names = [line.name for line in lines]
    amounts = benchmark.quick if arguments.quick else benchmark.amounts
    about = machine.about() | dict(benchmark.about)
    for what, fact in about.items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    measured: dict[str, dict[str, list[float]]] = {side: {} for side in arguments.sides}
    began = time.monotonic()
    for session in benchmark.sessions:
        wanted = [name for name in names if name.startswith(session.lines)]
        turns = min(session.turns, arguments.repeat or (1 if arguments.quick else session.turns))
        for turn in range(turns if wanted else 0):
            for side in arguments.sides:
                heading = f"[bold]{side}[/], {', '.join(wanted)}, {turn + 1} of {turns}"
                console.print(f"{heading}, after {time.monotonic() - began:.0f} s", highlight=False)
                already = len(programs.commands)
                values = session.measure(benchmark.sides[side], wanted, amounts)
                for name in wanted:
                    measured[side].setdefault(name, []).append(values[name])
                    console.print(f"  {name}: {values[name]:.3f}", highlight=False)
                for command in programs.commands[already:]:
                    console.print(f"  [dim]$ {command}[/]", highlight=False, soft_wrap=True)
    results = report.verdicts(lines, measured)
    repeats = max((len(values) for side in measured.values() for values in side.values()), default=0)
    report.show(console, results, repeats)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(about, results, repeats))
    report.save(arguments.json, about, programs.commands, measured, results)
    console.print(f"in {time.monotonic() - began:.0f} s; every value and command: {arguments.json}", highlight=False)
    return 1 if any(result.reached is False for result in results) else 0


def _arguments(benchmark: Benchmark[Side, Amounts]) -> argparse.Namespace:
    file = Path("build") / f"{benchmark.name.replace('.', '-')}.json"
    parser = argparse.ArgumentParser(
        prog=f"python -m {benchmark.name}",
        description="Measures both sides by turns and prints the ratios; exit code 1 when a line is missed.",
    )
    names = ", ".join(line.name for line in benchmark.lines)
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"of: {names}; a name's beginning stands for all such")
    parser.add_argument("--quick", action="store_true", help="little load: shows that it works, not how fast it is")
    parser.add_argument("--repeat", type=int, metavar="TIMES", help="at most so many turns")
    parser.add_argument(
        "--side", dest="sides", action="append", choices=list(benchmark.sides), help="only this side (both, by turns)"
    )
    parser.add_argument("--json", type=Path, default=file, metavar="FILE", help=f"where the values go ({file})")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the machine and the table, for a page")
    arguments = parser.parse_args()
    arguments.sides = arguments.sides or list(benchmark.sides)
    try:
        benchmark.chosen(arguments.lines)
    except ValueError as error:
        parser.error(str(error))
    return arguments
