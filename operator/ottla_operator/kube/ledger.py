"""Which topics go with their resources: noted in a ConfigMap, so that nothing has to hold the resources' deletion up.

A finalizer would keep a Topic, and so its namespace, from going while no operator is there. Instead, a topic whose deletionPolicy is Delete is noted here
while its resource is there, and again that an operator saw the resource go and say so to the last; then the topic is deleted and struck off. A resource is
known by its uid: one that is made anew under the same name is another.

Invariant: nothing that is lost here, or cannot be read, deletes records.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import Api
from ottla_operator.kube.kinds import CONFIG_MAP
from ottla_operator.kube.known import Key
from ottla_operator.plan.objects.names import FIELD_MANAGER
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.resources.model import Json

DATA: Final = "topics.json"


@dataclass(slots=True)
class Ledger:
    """`by_uid`: of the resource."""

    api: Api
    key: Key
    by_uid: dict[str, DeletionRecord] = field(default_factory=dict)

    @classmethod
    async def read(cls, api: Api, key: Key) -> "Ledger":
        found = await api.get(CONFIG_MAP, key.namespace, _name(key))
        return cls(api, key, _notes(((found or {}).get("data") or {}).get(DATA, "{}")))

    async def write(self, by_uid: Mapping[str, DeletionRecord], cluster: Json) -> None:
        """Only when it changed. `cluster`: the Cluster, which it goes with."""
        if by_uid == self.by_uid:
            return
        owner = {
            "apiVersion": cluster["apiVersion"],
            "kind": cluster["kind"],
            "name": self.key.name,
            "uid": cluster["metadata"]["uid"],
        }
        await self.api.apply(
            {
                "apiVersion": CONFIG_MAP.api,
                "kind": CONFIG_MAP.name,
                "metadata": {
                    "name": _name(self.key),
                    "namespace": self.key.namespace,
                    "labels": {"app.kubernetes.io/name": "ottla", "app.kubernetes.io/managed-by": FIELD_MANAGER},
                    "ownerReferences": [owner],
                },
                "data": {DATA: json.dumps(by_uid, sort_keys=True)},
            }
        )
        self.by_uid = dict(by_uid)


def _notes(text: str) -> dict[str, DeletionRecord]:
    """What somebody else has written there counts for nothing."""
    try:
        return {
            uid: DeletionRecord(*it) for uid, it in json.loads(text).items() if len(it) == len(DeletionRecord._fields)
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def _name(key: Key) -> str:
    return f"{key.name}-topics-to-delete"
