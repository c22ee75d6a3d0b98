"""A plot of numbers in a terminal. Pure."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
EIGHTHS: Final = len(BLOCKS) - 1


def plot(
    values: Sequence[float], label: Callable[[float], str], *, width: int = 60, height: int = 6, seconds: float = 0.0
) -> list[str]:
    """Lines of text with a bar for each value. The last line is labelled with 0 and the first with
    the highest bar's value. `seconds`: time at the right end of the axis; 0 for no time axis. More
    than `width` values are averaged.
    """
    bars = shrink(values, width)
    top = max(bars, default=0.0)
    filled = [round(bar / top * height * EIGHTHS) if top > 0 else 0 for bar in bars]
    margin = max(len(label(top)), len(label(0.0)))
    lines = []
    for row in range(height - 1, -1, -1):
        axis = label(0.0) if row == 0 else label(top) if row == height - 1 and top > 0 else ""
        cells = "".join(BLOCKS[min(max(eighths - row * EIGHTHS, 0), EIGHTHS)] for eighths in filled)
        lines.append(f"{axis:>{margin}} ┤{cells}".rstrip())
    if seconds:
        end = f"{seconds:.0f} s"
        lines.append(f"{'':>{margin}}  0{end:>{max(len(bars) - 1, len(end) + 1)}}")
    return lines


def shrink(values: Sequence[float], width: int) -> list[float]:
    """Means of consecutive values, at most `width`."""
    if len(values) <= width:
        return list(values)
    edges = [round(number * len(values) / width) for number in range(width + 1)]
    return [sum(values[left:right]) / (right - left) for left, right in pairwise(edges)]
