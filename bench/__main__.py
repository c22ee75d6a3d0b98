"""`python -m bench [LINE…]`: measures both sides by turns; exit code 1 when a line is missed."""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from bench import machine, programs, report, session
from bench.lines import LINES, chosen
from tests.brokers import BROKERS

SIDES = ("ottla", "kafka")


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 180)
    lines = chosen(arguments.lines)
    names = [line.name for line in lines]
    amounts = session.QUICK if arguments.quick else session.Amounts()
    repeats = 1 if arguments.quick else arguments.repeat
    about = machine.about()
    for what, fact in about.items():
        console.print(f"[bold]{what}[/]: {fact}", highlight=False)
    measured: dict[str, dict[str, list[float]]] = {side: {} for side in arguments.sides}
    began = time.monotonic()
    for turn in range(repeats):
        for side in arguments.sides:
            console.print(
                f"[bold]{side}[/], {turn + 1} of {repeats}, after {time.monotonic() - began:.0f} s", highlight=False
            )
            already = len(programs.commands)
            for name, value in session.measure(BROKERS[side], names, amounts).items():
                measured[side].setdefault(name, []).append(value)
                console.print(f"  {name}: {value:.3f}", highlight=False)
            for command in programs.commands[already:]:
                console.print(f"  [dim]$ {command}[/]", highlight=False, soft_wrap=True)
    results = report.verdicts(lines, measured)
    report.show(console, results, repeats)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(about, results, repeats))
    report.save(arguments.json, about, programs.commands, measured, results)
    console.print(f"in {time.monotonic() - began:.0f} s; every value and command: {arguments.json}", highlight=False)
    return 1 if any(result.reached is False for result in results) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"of: {', '.join(line.name for line in LINES)}")
    parser.add_argument(
        "--quick", action="store_true", help="little load, once: shows that it works, not how fast it is"
    )
    parser.add_argument("--repeat", type=int, default=3, metavar="TIMES", help="how often each side is measured (3)")
    parser.add_argument("--side", dest="sides", action="append", choices=SIDES, help="only this side (both, by turns)")
    parser.add_argument(
        "--json", type=Path, default=Path("build/bench.json"), metavar="FILE", help="where the values go"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the machine and the table, for a page")
    arguments = parser.parse_args()
    arguments.sides = arguments.sides or list(SIDES)
    try:
        chosen(arguments.lines)
    except ValueError as error:
        parser.error(str(error))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
