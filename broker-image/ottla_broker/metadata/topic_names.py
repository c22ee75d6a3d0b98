"""Kafka's rules for topic names (`org.apache.kafka.common.internals.Topic`)."""

import re
from collections.abc import Iterable

from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    problem = None
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "'.' and '..' are folders"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"it has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    elif not _ALLOWED.fullmatch(name):
        problem = "allowed are ASCII letters and digits, '.', '_' and '-'"
    elif name == METADATA_TOPIC:
        problem = "it is the cluster's own metadata log"
    if problem:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"topic name {name[:MAX_NAME_LENGTH]!r}: {problem}")


def is_valid_topic_name(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """The existing topic with the same metric name, in which '.' and '_' are one character.
    None if there is none.
    """
    own = metric_name(name)
    if own == name and "_" not in name:
        return None
    return next((other for other in existing if other != name and metric_name(other) == own), None)


def metric_name(name: str) -> str:
    return name.replace(".", "_")
