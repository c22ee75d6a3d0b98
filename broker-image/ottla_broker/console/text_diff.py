"""Differences between two texts, line by line. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

MAX_LINES: Final = 2000
"""Of each text: the time to compare them grows with the square."""
CONTEXT_LINES: Final = 3

LineKind = Literal["same", "added", "removed", "gap"]
SIGNS: Final[dict[LineKind, str]] = {"same": " ", "added": "+", "removed": "-", "gap": "…"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`gap` stands for lines that both texts have."""

    kind: LineKind
    text: str = ""

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


def compare_lines(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    """Changed lines with those around them; empty for equal texts. Raises ValueError for texts that
    are too long.
    """
    if max(len(old), len(new)) > MAX_LINES:
        raise ValueError(f"texts of more than {MAX_LINES:,} lines are not compared")
    return list(_compare(old, new))


def _compare(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    reached = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT_LINES):
        if group[0][1] > reached:
            yield DiffLine("gap")
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (DiffLine("same", text) for text in old[old_from:old_to])
                continue
            yield from (DiffLine("removed", text) for text in old[old_from:old_to])
            yield from (DiffLine("added", text) for text in new[new_from:new_to])
        reached = group[-1][2]
    if 0 < reached < len(old):
        yield DiffLine("gap")
