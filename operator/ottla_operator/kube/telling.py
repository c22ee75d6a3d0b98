"""What the operator tells: the status of a resource, written only when it changed, and events on it."""

import datetime
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import CONFLICT, NOT_FOUND, Api, ApiError
from ottla_operator.kube.kinds import EVENT, kind_of
from ottla_operator.plan.conditions import Conditions, render_conditions
from ottla_operator.plan.objects.names import FIELD_MANAGER
from ottla_operator.resources.model import Json

SAID_ONCE_FOR_S: Final = 600.0
MANY_SAID: Final = 1000
ATTEMPTS: Final = 3  # at a status that others change as well
log = logging.getLogger("ottla.operator")


@dataclass(slots=True)
class Telling:
    api: Api
    who: str
    _said: dict[tuple[str, str, str], datetime.datetime] = field(default_factory=dict)

    async def status(self, resource: Json, judged: Conditions, more: Mapping[str, Json]) -> None:
        """`resource`: as it was seen; its status is looked at, and written when another would be true. `more`: fields of its kind; None: not known."""
        before = resource.get("status") or {}
        wanted = {
            "observedGeneration": judged.generation,
            "conditions": render_conditions(judged, before.get("conditions") or (), now_text()),
            **{key: value for key, value in more.items() if value is not None},
        }
        if wanted == before:
            return
        if (told := await self._write(resource, wanted)) is not None:
            resource["status"] = told.get("status")
            resource["metadata"]["resourceVersion"] = told["metadata"]["resourceVersion"]

    async def _write(self, resource: Json, status: Json) -> Json | None:
        """The resource as it is then; None when it has been deleted meanwhile. What has its name by now is another, and is told nothing of it: for that the
        version is given, since the API server takes no notice of a uid here."""
        metadata = resource["metadata"]
        at = {key: metadata[key] for key in ("name", "namespace", "resourceVersion") if key in metadata}
        wanted = {key: resource[key] for key in ("apiVersion", "kind")} | {"metadata": at, "status": status}
        for _ in range(ATTEMPTS):
            try:
                return await self.api.apply_status(wanted)
            except ApiError as error:
                if error.status == NOT_FOUND:
                    return None
                if error.status != CONFLICT:
                    raise
                changed = error
            found = await self.api.get(kind_of(resource), at["namespace"], at["name"])
            if found is None or found["metadata"]["uid"] != metadata["uid"]:
                return None
            at["resourceVersion"] = found["metadata"]["resourceVersion"]
        raise changed

    async def event(self, resource: Json, reason: str, message: str, *, warning: bool = False) -> None:
        """On the resource, for `kubectl describe`. The same is not said again for a while. That it cannot be said stops nothing."""
        metadata = resource["metadata"]
        now = datetime.datetime.now(datetime.UTC)
        key = (str(metadata.get("uid")), reason, message)
        if key in self._said and (now - self._said[key]).total_seconds() < SAID_ONCE_FOR_S:
            return
        if len(self._said) >= MANY_SAID:
            self._said.clear()
        self._said[key] = now
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
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": FIELD_MANAGER, "host": self.who},
            "firstTimestamp": now_text(),
            "lastTimestamp": now_text(),
            "count": 1,
        }
        try:
            await self.api.create(event)
        except ApiError as error:
            log.warning("an event cannot be told: %s", error)


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
