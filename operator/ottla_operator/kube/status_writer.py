"""Writes the operator's reports: `status` of a resource, only when it changes, and events."""

import datetime
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import CONFLICT, NOT_FOUND, ApiClient, ApiError
from ottla_operator.kube.kinds import EVENT, kind_of
from ottla_operator.plan.conditions import Conditions, render_conditions
from ottla_operator.plan.objects.names import FIELD_MANAGER
from ottla_operator.resources.common import format_time
from ottla_operator.resources.model import Json

REPEAT_LASTING_S: Final = 600.0
REPEAT_S: Final = 2.0
"""Time within which the same event is not repeated: a watch may still show the status from before
the event, with which the reconciler would record it again.
"""
MAX_REMEMBERED_EVENTS: Final = 1000
MAX_MESSAGE_LENGTH: Final = 1024
ATTEMPTS: Final = 3  # at a status that others change at the same time
log = logging.getLogger("ottla.operator")


@dataclass(slots=True)
class StatusWriter:
    api: ApiClient

    async def write(self, resource: Json, conditions: Conditions, fields: Mapping[str, Json]) -> None:
        """Writes the status if it differs from that of `resource`, which is updated. `fields`:
        status fields besides the conditions; None leaves one out.
        """
        previous = resource.get("status") or {}
        status = {
            "observedGeneration": conditions.generation,
            "conditions": render_conditions(conditions, previous.get("conditions") or (), now_text()),
            **{key: value for key, value in fields.items() if value is not None},
        }
        if status == previous:
            return
        if (written := await self._apply(resource, status)) is not None:
            resource["status"] = written.get("status")
            resource["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"]

    async def _apply(self, resource: Json, status: Json) -> Json | None:
        """Returns the resulting resource; None if it was deleted. Raises ApiError; for conflicts
        only after ATTEMPTS. A resource that was created in its place must not get the status, so
        the version is sent: the API server ignores a uid here.
        """
        metadata = resource["metadata"]
        target = {key: metadata[key] for key in ("name", "namespace", "resourceVersion") if key in metadata}
        patch = {key: resource[key] for key in ("apiVersion", "kind")} | {"metadata": target, "status": status}
        for _ in range(ATTEMPTS):
            try:
                return await self.api.apply_status(patch)
            except ApiError as error:
                if error.status == NOT_FOUND:
                    return None
                if error.status != CONFLICT:
                    raise
                conflict = error
            found = await self.api.get(kind_of(resource), target["namespace"], target["name"])
            if found is None or found["metadata"]["uid"] != metadata["uid"]:
                return None
            target["resourceVersion"] = found["metadata"]["resourceVersion"]
        raise conflict


@dataclass(slots=True)
class EventRecorder:
    """`identity`: name of this operator process in events. `now`: returns the wall time."""

    api: ApiClient
    identity: str
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    _recorded: dict[tuple[str, str, str], datetime.datetime] = field(default_factory=dict)

    async def record(
        self, resource: Json, reason: str, message: str, *, is_warning: bool = False, lasts: bool = False
    ) -> None:
        """Creates an event for `kubectl describe`, and logs its message. The same event is not
        repeated for REPEAT_S, or with `lasts` for REPEAT_LASTING_S. A failure is only logged.
        """
        metadata = resource["metadata"]
        now = self.now()
        key = (str(metadata.get("uid")), reason, message)
        repeat_s = REPEAT_LASTING_S if lasts else REPEAT_S
        if key in self._recorded and (now - self._recorded[key]).total_seconds() < repeat_s:
            return
        if len(self._recorded) >= MAX_REMEMBERED_EVENTS:
            self._recorded.clear()
        self._recorded[key] = now
        log.info("%s %s/%s: %s", resource["kind"], metadata["namespace"], metadata["name"], message)
        event = {
            "apiVersion": EVENT.api,
            "kind": EVENT.name,
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata.get("uid"),
            },
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": message[:MAX_MESSAGE_LENGTH],
            "source": {"component": FIELD_MANAGER, "host": self.identity},
            "firstTimestamp": format_time(now.timestamp()),
            "lastTimestamp": format_time(now.timestamp()),
            "count": 1,
        }
        try:
            await self.api.create(event)
        except ApiError as error:
            log.warning("cannot create event %s: %s", reason, error)


def now_text() -> str:
    """The present time, as Kubernetes' objects have it."""
    return format_time(time.time())
