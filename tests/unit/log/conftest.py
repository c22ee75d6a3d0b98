from pathlib import Path

import pytest

from tests.unit.log.log_fixtures import FailingDisk, LogFolder


@pytest.fixture
def folder(tmp_path: Path) -> LogFolder:
    return LogFolder(str(tmp_path / "topic-0"))


@pytest.fixture
def failing_folder(tmp_path: Path) -> LogFolder:
    """A folder on a disk that fails on demand (`folder.disk` is a FailingDisk)."""
    return LogFolder(str(tmp_path / "topic-0"), disk=FailingDisk())
