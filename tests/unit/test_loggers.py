"""The broker's loggers are its modules (docs/architecture.md, "Log lines")."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "broker-image" / "ottla_broker"
# Sets the levels of loggers by name.
EXEMPT = PACKAGE / "config" / "loggers.py"
MODULES = [path for path in PACKAGE.rglob("*.py") if path != EXEMPT]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_logs_under_its_own_name(path: Path) -> None:
    lines = re.findall(r".*getLogger\(.*", path.read_text())
    assert lines in ([], ["logger = logging.getLogger(__name__)"])
