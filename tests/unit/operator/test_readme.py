"""README's links lead somewhere."""

import re
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"


def test_every_linked_file_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
