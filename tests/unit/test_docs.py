"""Paths that the glossary, CONTRIBUTING and the architecture page name exist. Each picture of the
console is taken by a test and shown in docs/console.md.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASES = (ROOT, *(ROOT / it for it in ("broker-image/ottla_broker", "operator/ottla_operator", "spark-app/ottla_spark")))


def paths_named_in(page: Path) -> list[str]:
    """Every inline code span that looks like a path of a file or a folder of the repository."""
    spans = re.findall(r"`([^`\s]+)`", page.read_text(encoding="utf-8"))
    return [span for span in spans if "/" in span and not span.startswith(("/", "http", ".venv", "build/"))]


def test_paths_that_documents_name_exist() -> None:
    for name in ("docs/glossary.md", "docs/architecture.md", "CONTRIBUTING.md"):
        paths = paths_named_in(ROOT / name)
        assert len(paths) > 5, name
        missing = [path for path in paths if not any((base / path).exists() for base in BASES)]
        assert not missing, f"{name}: {missing}"


def test_each_picture_of_the_console_is_taken_by_a_test_and_shown() -> None:
    pictures = {path.name for path in (ROOT / "docs" / "images").glob("console-*.png")}
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "clients").glob("test_console*.py"))
    calls = re.findall(r"take_picture\((.*)\)", tests)
    assert pictures == {f"console-{name}.png" for call in calls for name in re.findall(r'"([a-z-]+)"', call)}
    shown = re.findall(r"\(images/(console-[a-z-]+\.png)\)", (ROOT / "docs" / "console.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(pictures)
