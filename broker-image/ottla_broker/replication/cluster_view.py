"""A leader's view of the brokers around it."""

import asyncio
from typing import Protocol

from ottla_broker.metadata.image import MetadataImage


class ClusterView(Protocol):
    def now_s(self) -> float:
        """Monotonic time."""
        ...

    def may_join(self, broker: int, epoch: int) -> bool:
        """True if this incarnation of a broker may join an ISR as far as this broker knows (rule
        4); the controller decides."""
        ...

    def is_alive(self, broker: int) -> bool:
        """True if the broker is unfenced."""
        ...

    def is_registered(self, broker: int, epoch: int) -> bool:
        """True if this incarnation of a broker is the registered one."""
        ...


class MetadataClusterView:
    """The view of the cluster that the metadata image has."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def may_join(self, broker: int, epoch: int) -> bool:
        registered = self._image.brokers.get(broker)
        if registered is None or registered.epoch != epoch:
            return False
        return not (registered.fenced or registered.shutting_down)

    def is_alive(self, broker: int) -> bool:
        registered = self._image.brokers.get(broker)
        return registered is not None and not registered.fenced

    def is_registered(self, broker: int, epoch: int) -> bool:
        registered = self._image.brokers.get(broker)
        return registered is not None and registered.epoch == epoch
