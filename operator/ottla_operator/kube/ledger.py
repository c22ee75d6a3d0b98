"""Which topics go with their resources: noted in a ConfigMap, so that nothing has to hold the resources' deletion up.

A finalizer would keep a Topic, and so its namespace, from going while no operator is there. Instead, a topic whose deletionPolicy is Delete is noted here
while its resource is there; when the resource is found gone, at whatever time, the topic is deleted and struck off.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla_operator.kube.api import Api
from ottla_operator.kube.kinds import CONFIG_MAP
from ottla_operator.kube.known import Key
from ottla_operator.plan.objects.names import MANAGER
from ottla_operator.resources.model import Json

DATA: Final = "topics.json"


@dataclass(slots=True)
class Ledger:
    """`by_resource`: name of the Topic resource → name of the topic and its id on the brokers."""

    api: Api
    key: Key
    by_resource: dict[str, tuple[str, str]]

    @classmethod
    async def read(cls, api: Api, key: Key) -> "Ledger":
        found = await api.get(CONFIG_MAP, key.namespace, _name(key))
        text = ((found or {}).get("data") or {}).get(DATA, "{}")
        return cls(api, key, {name: (it[0], it[1]) for name, it in json.loads(text).items()})

    async def write(self, by_resource: Mapping[str, tuple[str, str]], cluster: Json | None) -> None:
        """Only when it changed. `cluster`: the Cluster, which it goes with."""
        if dict(by_resource) == self.by_resource or cluster is None:
            return
        self.by_resource = dict(by_resource)
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
                    "labels": {"app.kubernetes.io/name": "ottla", "app.kubernetes.io/managed-by": MANAGER},
                    "ownerReferences": [owner],
                },
                "data": {DATA: json.dumps(self.by_resource, sort_keys=True)},
            }
        )


def _name(key: Key) -> str:
    return f"{key.name}-topics-to-delete"
