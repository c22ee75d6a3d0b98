"""Numbers of things in texts for people."""


def count_noun(number: int, noun: str) -> str:
    """1 partition, 2 partitions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
