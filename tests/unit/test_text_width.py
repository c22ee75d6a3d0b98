"""Hand-written documents keep to 100 columns. Code keeps to 120 by ruff's E501."""

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_COLUMNS = 100
# Documents that still have to be wrapped. Remove one when it has no longer lines.
NOT_WRAPPED = {
    ".github/PULL_REQUEST_TEMPLATE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/architecture.md",
    "docs/benchmark.md",
    "docs/conditions.md",
    "docs/crds.md",
    "docs/durability.md",
    "docs/gitops.md",
    "docs/glossary.md",
    "docs/index.md",
    "docs/measurements/2026-11-21-scale.md",
    "docs/measurements/2026-11-21-three-brokers.md",
    "docs/measurements/2026-11-22-one-broker.md",
    "docs/measurements/2026-11-22-protocol-tests.md",
    "docs/measurements/2026-11-22-simulation.md",
    "docs/mirroring.md",
    "docs/moving-data.md",
    "docs/operator.md",
    "docs/pipelines.md",
    "docs/scale.md",
    "docs/several-brokers.md",
    "docs/simulation.md",
    "docs/tutorial.md",
    "docs/upgrading.md",
}


def documents() -> list[str]:
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def long_lines(text: str) -> Iterator[int]:
    """Line numbers. Tables, code and lines with a link or an address cannot be wrapped everywhere."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if (
            not is_code
            and len(line) > MAX_COLUMNS
            and not line.startswith("|")
            and "](" not in line
            and "://" not in line
        ):
            yield number


@pytest.mark.parametrize("name", documents())
def test_text_is_wrapped(name: str) -> None:
    found = list(long_lines((ROOT / name).read_text()))
    assert not found or name in NOT_WRAPPED, f"lines {found}"
