"""Reads Kubernetes' events of pods that do not exist or do not start, where no object's status has
the cause.
"""

from collections.abc import Iterable
from typing import Final

from ottla_operator.resources.model import Json

FAILED_CREATE: Final = "FailedCreate"
MAX_MESSAGE_LENGTH: Final = 400


def creation_failure(events: Iterable[Json], newest_pod: str) -> str:
    """The reason why a StatefulSet cannot create a pod: quota, Pod Security, a missing service
    account; empty if nothing is known.

    `events`: events of the StatefulSet. `newest_pod`: creation time of its newest pod; empty if it
    has none. Events before that are outdated.
    """
    failures = [it for it in events if it.get("reason") == FAILED_CREATE and _time(it) >= newest_pod]
    return _message(max(failures, key=_time)) if failures else ""


def start_failure(events: Iterable[Json], since: str) -> str:
    """The reason why a pod that has a node is not ready, such as a volume that cannot be mounted;
    with Kubernetes' reason first, empty if nothing is known. `events`: the pod's warnings. `since`:
    earlier events are outdated."""
    newest = max((it for it in events if _time(it) >= since), key=_time, default=None)
    return "" if newest is None else f"{newest.get('reason', 'Warning')}: {_message(newest)}"


def _time(event: Json) -> str:
    """Time of the last occurrence; comparable, as all are UTC in seconds or finer."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _message(event: Json) -> str:
    text = " ".join(str(event.get("message") or "").split())
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[: MAX_MESSAGE_LENGTH - 1]}…"
