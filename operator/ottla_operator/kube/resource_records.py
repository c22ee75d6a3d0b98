"""What the operator remembers of Topics and Users, so that it can still act on their deletion when
the resources are gone. Each kind has a ConfigMap with JSON, which is deleted with the Cluster.
"""

import json
from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CONFIG_MAP
from ottla_operator.kube.owned_objects import owner_reference
from ottla_operator.plan.objects import names
from ottla_operator.reconcile.watch_cache import Key, resource_key
from ottla_operator.resources.model import Json

TOPICS: Final = "topics-to-delete", "topics.json"
USERS: Final = "users", "users.json"
"""Suffix of the ConfigMap's name, and key in its data."""


async def read_resource_records(api: ApiClient, cluster: Key, kind: tuple[str, str]) -> Json:
    """Empty if there is no ConfigMap, or its content is not a JSON object."""
    suffix, data_key = kind
    found = await api.get(CONFIG_MAP, cluster.namespace, f"{cluster.name}-{suffix}")
    try:
        records = json.loads(((found or {}).get("data") or {}).get(data_key, "{}"))
    except ValueError:
        return {}
    return records if isinstance(records, dict) else {}


async def write_resource_records(api: ApiClient, cluster: Json, kind: tuple[str, str], records: Json) -> None:
    key, (suffix, data_key) = resource_key(cluster), kind
    await api.apply(
        {
            "apiVersion": CONFIG_MAP.api,
            "kind": CONFIG_MAP.name,
            "metadata": {
                "name": f"{key.name}-{suffix}",
                "namespace": key.namespace,
                "labels": {"app.kubernetes.io/name": "ottla", "app.kubernetes.io/managed-by": names.FIELD_MANAGER},
                "ownerReferences": [owner_reference(cluster)],
            },
            "data": {data_key: json.dumps(records, sort_keys=True)},
        }
    )
