"""Expands the brokers' disks in place: patches the volume claims, and deletes the StatefulSet
without its pods, so that it is recreated, because its claim template cannot change.
"""

import asyncio
from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CLAIM, SERVICE, STATEFUL_SET
from ottla_operator.kube.owned_objects import ClusterObjects
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.desired import claimed_storage
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_quantity

DELETION_TIMEOUT_S: Final = 10.0


async def expand_storage(api: ApiClient, cluster: Cluster, objects: ClusterObjects) -> bool:
    """True if claims were patched and the StatefulSet was deleted. Raises ApiError if the storage
    class does not allow it, TimeoutError if the StatefulSet still exists after DELETION_TIMEOUT_S.
    """
    stateful_set, storage, namespace = objects.stateful_set, cluster.spec.storage, cluster.metadata.namespace
    assert storage is not None
    if stateful_set is None or parse_quantity(claimed_storage(stateful_set)) >= parse_quantity(storage.size):
        return False
    for claim in await api.list(CLAIM, namespace, names.selector_text(cluster)):
        if parse_quantity(claim["spec"]["resources"]["requests"]["storage"]) < parse_quantity(storage.size):
            change = {"spec": {"resources": {"requests": {"storage": storage.size}}}}
            await api.merge(CLAIM, namespace, claim["metadata"]["name"], change)
    if objects.headless_service in objects.services:  # whichever operator re-creates the StatefulSet needs its state
        annotations = {key: objects.state_annotations.get(key) for key in names.STATE_ANNOTATIONS}
        await api.merge(SERVICE, namespace, objects.headless_service, {"metadata": {"annotations": annotations}})
    await api.delete(STATEFUL_SET, stateful_set, orphan=True)
    async with asyncio.timeout(DELETION_TIMEOUT_S):
        while await api.get(STATEFUL_SET, namespace, cluster.name) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return True
