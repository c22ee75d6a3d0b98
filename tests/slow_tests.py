"""Tests with the marker `slow`, which `make test` leaves to continuous integration. CONTRIBUTING.md
has the rule for the marker.

Where tests are deselected by `-m "not slow"`, the last line of the run tells how many and how to
run them. Under pytest-xdist its workers collect the tests, and report that number to the process
that prints the line.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest
from _pytest.terminal import TerminalReporter

DESELECT: Final = "not slow"
_KEY_IN_WORKER_OUTPUT: Final = "slow tests"
_deselected: Final = pytest.StashKey[int]()


def slow(cases: Iterable[object]) -> list[Any]:
    """Parameters of a test that is slow in each of these cases. A case with several parameters is a
    tuple.
    """
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]


def quick_and_slow(quick: Sequence[object], slow: Sequence[object]) -> list[Any]:
    """Parameters of a test that takes several cases at once, such as seeds. `make test` runs it
    with the cases `quick` alone.
    """
    return [pytest.param(quick, id="quick"), pytest.param(slow, id="slow", marks=pytest.mark.slow)]


def count_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow"):
            stash = item.config.stash
            stash[_deselected] = stash.get(_deselected, 0) + 1


def send_count(session: pytest.Session) -> None:
    """Called in a worker, for the process that prints."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY_IN_WORKER_OUTPUT] = session.config.stash.get(_deselected, 0)


def receive_count(node: Any) -> None:
    """Called for each worker that has ended. All collect the same tests. A killed one has no
    output.
    """
    count = getattr(node, "workeroutput", {}).get(_KEY_IN_WORKER_OUTPUT, 0)
    stash = node.config.stash
    stash[_deselected] = max(count, stash.get(_deselected, 0))


def write_count(terminal: TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_deselected, 0)
    if count and DESELECT in config.option.markexpr:
        terminal.write_line(
            f"{count} slow tests were left to continuous integration; to run them: `make test-all`, or pytest -m slow "
            + " ".join(config.args)
        )
