from pathlib import Path

import pytest

from tests.unit.records.compacted_log import CompactedLog


@pytest.fixture
def compacted(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)
