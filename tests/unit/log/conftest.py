from pathlib import Path

import pytest

from tests.unit.log.making import FailingDisk, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "topic-0"))


@pytest.fixture
def failing(tmp_path: Path) -> Place:
    """A place on a disk that fails on command (`place.disk` is a FailingDisk)."""
    return Place(str(tmp_path / "topic-0"), disk=FailingDisk())
