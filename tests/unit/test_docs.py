"""Files that the glossary and CONTRIBUTING name as owners exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "broker-image" / "ottla_broker")


def paths_named_in(page: Path) -> list[str]:
    """Every inline code span that looks like a path of a file or a folder."""
    spans = re.findall(r"`([^`\s]+)`", page.read_text(encoding="utf-8"))
    return [span for span in spans if "/" in span and not span.startswith(("/", "http", ".venv", "build/"))]


def test_paths_that_the_glossary_and_contributing_name_exist() -> None:
    for name in ("docs/glossary.md", "CONTRIBUTING.md"):
        found = paths_named_in(ROOT / name)
        assert len(found) > 5, name
        missing = [path for path in found if not any((base / path).exists() for base in BASES)]
        assert not missing, f"{name}: {missing}"
