"""A benchmark as a program: command line, both sides in turns, table and JSON file."""

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
LoadSize = TypeVar("LoadSize")


@dataclass(frozen=True)
class Session(Generic[Side, LoadSize]):
    """Lines that are measured together: those whose names start with one of `lines`. The sides,
    Ottla and what it is compared with, take turns, `turns` each.
    """

    lines: tuple[str, ...]
    turns: int
    measure: Callable[[Side, Sequence[str], LoadSize], dict[str, float]]


@dataclass(frozen=True)
class Benchmark(Generic[Side, LoadSize]):
    """`name` is the module's, and the JSON file's in `build`. `about` adds to the description of
    the machine.
    """

    name: str
    lines: Sequence[Line]
    sides: Mapping[str, Side]
    sessions: Sequence[Session[Side, LoadSize]]
    load_size: LoadSize
    quick: LoadSize
    about: Mapping[str, str]

    def select_lines(self, names: Sequence[str]) -> list[Line]:
        """The lines whose names start with one of `names`; all lines if `names` is empty. Raises
        ValueError.
        """
        known = [line.name for line in self.lines]
        if unknown := [name for name in names if not any(it.startswith(name) for it in known)]:
            raise ValueError(f"unknown line {', '.join(unknown)}; known lines: {', '.join(known)}")
        return [line for line in self.lines if not names or line.name.startswith(tuple(names))]


def run_benchmark(benchmark: Benchmark[Side, LoadSize]) -> int:
    """Runs the benchmark. Returns the exit code: 1 if a requirement is missed."""
    arguments = _parse_arguments(benchmark)
    machine.use_compiled_broker()
    console = Console(width=None if sys.stdout.isatty() else 180)
    lines = benchmark.select_lines(arguments.lines)
    names = [line.name for line in lines]
    load_size = benchmark.quick if arguments.quick else benchmark.load_size
    about = machine.describe() | dict(benchmark.about)
    for what, fact in about.items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    measured: dict[str, dict[str, list[float]]] = {side: {} for side in arguments.sides}
    began = time.monotonic()
    for session in benchmark.sessions:
        selected = [name for name in names if name.startswith(session.lines)]
        turns = min(session.turns, arguments.repeat or (1 if arguments.quick else session.turns))
        for turn in range(turns if selected else 0):
            for side in arguments.sides:
                heading = f"[bold]{side}[/], {', '.join(selected)}, {turn + 1} of {turns}"
                console.print(f"{heading}, after {time.monotonic() - began:.0f} s", highlight=False)
                first_command = len(programs.command_log)
                values = session.measure(benchmark.sides[side], selected, load_size)
                for name in selected:
                    measured[side].setdefault(name, []).append(values[name])
                    console.print(f"  {name}: {values[name]:.3f}", highlight=False)
                for command in programs.command_log[first_command:]:
                    console.print(f"  [dim]$ {command}[/]", highlight=False, soft_wrap=True)
    results = report.evaluate_lines(lines, measured)
    repeats = max((len(values) for side in measured.values() for values in side.values()), default=0)
    report.print_table(console, results, repeats)
    if arguments.markdown:
        arguments.markdown.write_text(report.to_markdown(about, results, repeats))
    report.write_json(arguments.json, about, programs.command_log, measured, results)
    console.print(
        f"took {time.monotonic() - began:.0f} s; all values and commands are in {arguments.json}", highlight=False
    )
    return 1 if any(result.is_reached is False for result in results) else 0


def _parse_arguments(benchmark: Benchmark[Side, LoadSize]) -> argparse.Namespace:
    file = Path("build") / f"{benchmark.name.replace('.', '-')}.json"
    parser = argparse.ArgumentParser(
        prog=f"python -m {benchmark.name}",
        description="Measure both sides in turns and print the ratios. The exit code is 1 if a requirement is missed.",
    )
    names = ", ".join(line.name for line in benchmark.lines)
    parser.add_argument(
        "lines", nargs="*", metavar="LINE", help=f"one of {names}; a prefix selects all lines that start with it"
    )
    parser.add_argument(
        "--quick", action="store_true", help="use little load and one turn, to check that the benchmark works"
    )
    parser.add_argument("--repeat", type=int, metavar="TURNS", help="maximum number of turns")
    parser.add_argument(
        "--side",
        dest="sides",
        action="append",
        choices=list(benchmark.sides),
        help="measure only this side (default: both, in turns)",
    )
    parser.add_argument(
        "--json", type=Path, default=file, metavar="FILE", help=f"file for the values (default: {file})"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="file for the machine and the table as Markdown")
    arguments = parser.parse_args()
    arguments.sides = arguments.sides or list(benchmark.sides)
    try:
        benchmark.select_lines(arguments.lines)
    except ValueError as error:
        parser.error(str(error))
    return arguments
