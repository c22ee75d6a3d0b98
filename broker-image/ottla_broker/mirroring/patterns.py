"""Which names a mirror's patterns choose. Pure.

A pattern is a name, or one with `*` for any letters; with a leading `!` it takes out what it matches, wherever it stands in the list. Names that
begin with `__` are a cluster's own affairs: only a pattern without `*` chooses them, and those that brokers write themselves are never chosen.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from ottla_broker.metadata.image import INTERNAL_TOPICS
from ottla_broker.metadata.records import METADATA_TOPIC

NEVER_MIRRORED = INTERNAL_TOPICS | {METADATA_TOPIC}
_OWN = "__"


def matches_topic(name: str, patterns: Sequence[str]) -> bool:
    return name not in NEVER_MIRRORED and matches_name(name, patterns)


def matches_name(name: str, patterns: Sequence[str]) -> bool:
    taken = any(_matches(name, pattern) for pattern in patterns if not pattern.startswith("!"))
    return taken and not any(_matches(name, pattern[1:]) for pattern in patterns if pattern.startswith("!"))


def _matches(name: str, pattern: str) -> bool:
    if "*" not in pattern:
        return name == pattern
    return not name.startswith(_OWN) and _expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
