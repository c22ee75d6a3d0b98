"""How tests are divided among streams that run beside each other (pytest-xdist, `make test`): by files, because tests of a file share what takes long to set up.

All tests of pipelines that share a JVM are one piece. Folders of long tests come first, so that short ones fill up the end.
"""

import pytest

LONGEST_FIRST = ("tests/spark/", "tests/e2e/")
SHARE_A_JVM, PROCESSES_OF_THEIR_OWN = "tests/spark/", "tests/spark/test_example.py"


def piece(test: str) -> str:
    """What a test, given by its node id, is not to be parted from."""
    file = test.partition("::")[0]
    return SHARE_A_JVM if file.startswith(SHARE_A_JVM) and file != PROCESSES_OF_THEIR_OWN else file


def longest_first(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((at for at, it in enumerate(LONGEST_FIRST) if item.nodeid.startswith(it)), len(LONGEST_FIRST))

    items.sort(key=place)


def scheduling(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class ByPieces(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return piece(nodeid)

    config.option.loadscopereorder = (
        False  # else by how many tests a piece has, which says nothing of how long they take
    )
    return ByPieces(config, log)
