"""What a leading partition knows of the brokers around it, and its way to the controller."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla_broker.metadata.image import MetadataImage

if TYPE_CHECKING:
    from ottla_broker.replication.partition import Partition


class ClusterView(Protocol):
    def now_s(self) -> float:
        """Monotonic time."""
        ...

    def may_join(self, broker: int, epoch: int) -> bool:
        """Whether this life of a broker may join an ISR as far as is known here (rule 4); the controller has the last word."""
        ...

    def lives(self, broker: int) -> bool:
        """Whether it is unfenced, as far as is known here."""
        ...

    def is_registered(self, broker: int, epoch: int) -> bool:
        """Whether this is the life of a broker that is registered, as far as is known here."""
        ...

    def propose(self, partition: "Partition") -> None:
        """Brings `partition.pending` to the controller. What becomes of it is told by the metadata, or by `refused` and `superseded`."""
        ...


class Alone:
    """For partitions that have one replica, and for tests of those."""

    def now_s(self) -> float:
        return 0.0

    def may_join(self, broker: int, epoch: int) -> bool:
        return False

    def lives(self, broker: int) -> bool:
        return False

    def is_registered(self, broker: int, epoch: int) -> bool:
        return False

    def propose(self, partition: "Partition") -> None:
        raise AssertionError(f"{partition.topic}-{partition.partition} has nobody to propose anything to")


class MetadataClusterView:
    """As the image has them. `send`: takes a partition's proposal on its way."""

    def __init__(self, image: MetadataImage, send: Callable[["Partition"], None]) -> None:
        self._image = image
        self.propose = send

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def may_join(self, broker: int, epoch: int) -> bool:
        registered = self._image.brokers.get(broker)
        if registered is None or registered.epoch != epoch:
            return False
        return not (registered.fenced or registered.shutting_down)

    def lives(self, broker: int) -> bool:
        registered = self._image.brokers.get(broker)
        return registered is not None and not registered.fenced

    def is_registered(self, broker: int, epoch: int) -> bool:
        registered = self._image.brokers.get(broker)
        return registered is not None and registered.epoch == epoch
