"""Draws the output of workers as SVG: the jobs that each has done, and its failed attempts.

python -u examples/messaging/worker.py | tee one.log     # and others in other terminals
cat *.log | python -m examples.messaging.plot > messaging.svg
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

from examples.bar_chart import BLUE, ORANGE, Series, draw_bars

DONE: Final = re.compile(r"job \d+ done by (\d+)")
FAILED: Final = re.compile(r"attempt \d+ of job \d+ failed at (\d+)")


def count(pattern: re.Pattern[str], lines: Iterable[str]) -> Counter[str]:
    """Worker → number of its lines that match."""
    return Counter(found[1] for line in lines if (found := pattern.match(line)))


def draw(lines: Iterable[str]) -> str:
    """The SVG document."""
    lines = list(lines)
    done, failed = count(DONE, lines), count(FAILED, lines)
    workers = sorted({*done, *failed})
    series = [
        Series("jobs done", BLUE, [done[worker] for worker in workers]),
        Series("failed attempts", ORANGE, [failed[worker] for worker in workers]),
    ]
    return draw_bars(series, {index: f"worker {worker}" for index, worker in enumerate(workers)}, beside=True)


if __name__ == "__main__":
    sys.stdout.write(draw(sys.stdin))
