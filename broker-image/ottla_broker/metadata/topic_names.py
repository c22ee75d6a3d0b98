"""Which topic names are allowed: Kafka's rules (`org.apache.kafka.common.internals.Topic`)."""

import re
from collections.abc import Iterable

from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION with what is allowed."""
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
    """Whether a topic could have this name."""
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """The topic that would share `name`'s metric names ('.' and '_' are one character there), if there is one."""
    wanted = metric_name(name)
    if wanted == name and "_" not in name:
        return None
    return next((other for other in existing if other != name and metric_name(other) == wanted), None)


def metric_name(name: str) -> str:
    """The name as it is in metrics."""
    return name.replace(".", "_")
