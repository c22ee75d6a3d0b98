"""Prints 2,000 jobs as JSON lines of records, for `ottla produce --lines -`.

    python examples/messaging/load.py | ottla produce --lines -

Each tenth job fails at its first attempt and each hundredth at every attempt, so that retries and
dead letters can be seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import msgspec

JOBS: Final = 2_000
ALWAYS: Final = 1_000
"""More failures than workers make attempts."""


class Job(msgspec.Struct):
    """Work to do. `failures`: number of attempts that fail before one succeeds."""

    number: int
    failures: int


class Line(msgspec.Struct):
    """A record as `ottla produce --lines` reads it."""

    topic: str
    key: str
    value: Job


def jobs(count: int = JOBS) -> Iterator[Job]:
    """Jobs 1 to `count`."""
    for number in range(1, count + 1):
        yield Job(number, ALWAYS if number % 100 == 0 else int(number % 10 == 0))


def main() -> None:
    """Prints every record."""
    encoder = msgspec.json.Encoder()
    for job in jobs():
        sys.stdout.buffer.write(encoder.encode(Line("jobs", str(job.number), job)) + b"\n")


if __name__ == "__main__":
    main()
