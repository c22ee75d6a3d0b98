from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.api.brokers import SmallBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    broker = SmallBroker(tmp_path)
    yield broker
    broker.close()
