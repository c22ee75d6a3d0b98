"""Sizes, durations, counts and lists as text."""

from collections.abc import Collection, Iterable


def format_size(count: int | None) -> str:
    """1.2 MiB; empty if unknown."""
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_duration(seconds: float) -> str:
    """0.4 s, 12 s, 3 min, 5.2 h, 4.1 d."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def format_count(number: int, noun: str) -> str:
    """1 partition, 2 partitions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_brokers(ids: Collection[int]) -> str:
    """broker 1; brokers 1, 2."""
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, sorted(ids)))}"


def format_list(items: Iterable[str], at_most: int = 10) -> str:
    """a, b, c; of more items than `at_most`: a, b and 3 more."""
    found = list(items)
    more = f" and {len(found) - at_most} more" if len(found) > at_most else ""
    return ", ".join(found[:at_most]) + more


def format_partitions(partitions: Iterable[tuple[str, int]]) -> list[str]:
    """TOPIC-PARTITION of each partition, in order."""
    return [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
