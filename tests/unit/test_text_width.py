"""Documents keep to 100 columns. Code keeps to 120 by ruff's E501."""

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_COLUMNS = 100
GENERATED = {"docs/conditions.md", "docs/crds.md"}  # their sources are Python files


def documents() -> list[str]:
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def long_lines(text: str) -> Iterator[int]:
    """Numbers of the lines that are too long. Lines of tables and code, and lines with a link or an
    address, do not count, because not all of them can be wrapped.
    """
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if (
            not is_code
            and len(line) > MAX_COLUMNS
            and not line.lstrip().startswith("|")
            and "](" not in line
            and "://" not in line
        ):
            yield number


@pytest.mark.parametrize("name", documents())
def test_text_is_wrapped(name: str) -> None:
    found = list(long_lines((ROOT / name).read_text()))
    assert not found or name in GENERATED, f"lines {found}"
