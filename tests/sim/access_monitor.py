"""Checks of access rules, credentials and quotas: during a run no deleted one reappears in a
broker's metadata, and at its end every acknowledged change holds.
"""

import asyncio
from collections.abc import Iterator

from ottla_broker.metadata.image import MetadataImage
from tests.sim.cluster import SimulatedCluster
from tests.sim.history import Access, History

CHECK_S = 0.05


def access_in(image: MetadataImage) -> set[Access]:
    return {
        *(("rule", entry.resource_name) for entry in image.acls.values()),
        *(("credential", user) for user, _ in image.scram_credentials),
        *(("quota", name or "") for entity in image.client_quotas for _, name in entity),
    }


class AccessMonitor:
    """Observes the brokers that serve clients."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        # By host: entries that the broker's metadata have had, and those of them that were deleted
        # and have disappeared there. A broker that is behind may still learn of an entry whose
        # deletion was acknowledged.
        self._had: dict[str, set[Access]] = {}
        self._gone: dict[str, set[Access]] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    def check(self) -> None:
        deleted = {what for what, exists in self._history.access.items() if exists is False}
        for broker in self._cluster:
            if not broker.is_serving or broker.broker is None:
                continue
            known = access_in(broker.broker.image)
            had, gone = self._had.setdefault(broker.host, set()), self._gone.setdefault(broker.host, set())
            had |= known
            for kind, name in sorted(gone & known):
                self._history.record_violation(f"the {kind} {name} came back on {broker.host}")
            self._gone[broker.host] = (gone | deleted & had) - known


def check_access(history: History, image: MetadataImage) -> Iterator[str]:
    known = access_in(image)
    for (kind, name), exists in history.access.items():
        if exists is True and (kind, name) not in known:
            yield f"the {kind} {name} was acknowledged, and does not exist"
        elif exists is False and (kind, name) in known:
            yield f"the deletion of the {kind} {name} was acknowledged, and it exists"
