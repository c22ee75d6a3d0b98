"""How pytest-xdist distributes tests among its workers (`make test WORKERS=8`).

A unit of work is a whole file, because the tests of a file share expensive fixtures. Tests of
pipelines share a JVM across files and make up two units, each with its own JVM: a worker that runs
them all would end long after the others. Suites with long tests come first, so that short tests
fill the end.
"""

import pytest

LONGEST_FIRST = ("tests/sim/", "tests/spark/", "tests/e2e/")
SPARK = "tests/spark/"
FIRST_OF_SECOND_JVM = "tests/spark/test_i"  # half of the processor time is that of files before it
SEPARATE_PROCESSES = tuple(
    f"tests/spark/test_{name}.py" for name in ("example", "delegation_tokens", "format_cases", "warm_up")
)


def work_unit(test: str) -> str:
    """The group of tests that run in the same worker as the test with this node id."""
    file = test.partition("::")[0]
    if not file.startswith(SPARK) or file in SEPARATE_PROCESSES:
        return file
    return "first shared JVM" if file < FIRST_OF_SECOND_JVM else "second shared JVM"


def sort_longest_suites_first(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((at for at, it in enumerate(LONGEST_FIRST) if item.nodeid.startswith(it)), len(LONGEST_FIRST))

    items.sort(key=place)


def create_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class WorkUnitScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

    # xdist would order units by their number of tests, which says nothing about their duration.
    config.option.loadscopereorder = False
    return WorkUnitScheduling(config, log)
