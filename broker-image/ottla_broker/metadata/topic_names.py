"""Which topic names are allowed: Kafka's rules (`org.apache.kafka.common.internals.Topic`)."""

import re
from collections.abc import Iterable

from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.wire.errors import ErrorCode, KafkaError

LONGEST = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION with what is allowed."""
    problem = None
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "'.' and '..' are folders"
    elif len(name) > LONGEST:
        problem = f"it has {len(name)} characters, at most {LONGEST} are allowed"
    elif not _LEGAL.fullmatch(name):
        problem = "allowed are ASCII letters and digits, '.', '_' and '-'"
    elif name == METADATA_TOPIC:
        problem = "it is the cluster's own metadata log"
    if problem:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"topic name {name[:LONGEST]!r}: {problem}")


def is_valid_topic_name(name: str) -> bool:
    """Whether a topic could have this name."""
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """The topic that would share `name`'s metric names ('.' and '_' are one character there), if there is one."""
    wanted = plain(name)
    if wanted == name and "_" not in name:
        return None
    return next((other for other in existing if other != name and plain(other) == wanted), None)


def plain(name: str) -> str:
    """The name as it is in metrics."""
    return name.replace(".", "_")
