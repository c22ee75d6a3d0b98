"""A leader's view of the brokers around it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla_broker.metadata.image import MetadataImage


class ClusterView(Protocol):
    def now_s(self) -> float:
        """The event loop's time."""
        ...

    def is_in_session(self) -> bool:
        """False if this broker may be fenced without knowing it (rule 6)."""
        ...

    def may_join(self, broker: int, epoch: int) -> bool:
        """True if, by this broker's metadata, the incarnation of `broker` may join an ISR (rule 4);
        the controller decides."""
        ...

    def is_alive(self, broker: int) -> bool:
        """True if the broker is unfenced."""
        ...

    def is_registered(self, broker: int, epoch: int) -> bool:
        """True if the incarnation of `broker` is the registered one."""
        ...


class MetadataClusterView:
    """The view that the metadata image has. `is_in_session`: whether this broker's session is
    valid, by its lifecycle.
    """

    def __init__(self, image: MetadataImage, is_in_session: Callable[[], bool] = lambda: True) -> None:
        self._image = image
        self._is_in_session = is_in_session

    def is_in_session(self) -> bool:
        return self._is_in_session()

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
