"""The role of active controller: a broker runs the controller, and its work for mirrors, while it
leads the metadata log."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config import Config
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import MIRROR_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.metadata.raft_quorum import RaftQuorum
from ottla_broker.runtime import Runtime


class Synchronizer(Protocol):
    """The MirrorSynchronizer, which is imported with the first mirror."""

    def apply_changes(self, changes: MetadataDelta) -> None: ...


@dataclass(eq=False, repr=False)
class ControllerRole:
    """Starts and stops the controller when this broker becomes and ceases to be the active one.

    `controller`: None while this broker is not the active controller. `mirror_synchronizer`: None
    as well until the cluster has a mirror. `_make_client`: returns a Client of this cluster with
    the given client id.
    """

    _config: Config
    _image: MetadataImage
    _runtime: Runtime
    _failure_detector: FailureDetector
    _background_tasks: BackgroundTasks
    _make_client: Callable[[str], Any]
    controller: Controller | None = None
    mirror_synchronizer: Synchronizer | None = None
    _cluster_id: str = ""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, quorum: RaftQuorum) -> None:
        """Starts the controller; `quorum` has elected this broker."""
        self.controller = controller = Controller(
            self._image, quorum, self._runtime, self._config, self._config.node_id, self._failure_detector
        )
        self._cluster_id = quorum.cluster_id
        self._tasks = [self._background_tasks.start(controller.run())]
        if any(kind == MIRROR_RESOURCE for kind, _ in self._image.configs):
            self._start_synchronizer(controller)

    def apply_changes(self, delta: MetadataDelta) -> None:
        """Called when the image has changed by `delta`."""
        if self.mirror_synchronizer is not None:
            self.mirror_synchronizer.apply_changes(delta)
        elif self.controller is not None and any(kind == MIRROR_RESOURCE for kind, _ in delta.changed_configs):
            self._start_synchronizer(self.controller)

    def end(self) -> None:
        """Stops the controller; another broker is elected, or none."""
        self.controller = self.mirror_synchronizer = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def _start_synchronizer(self, controller: Controller) -> None:
        from ottla_broker.mirroring.synchronizer import MirrorSynchronizer

        self.mirror_synchronizer = synchronizer = MirrorSynchronizer(
            controller, self._image, self._config, self._cluster_id, self._make_client
        )
        self._tasks.append(self._background_tasks.start(synchronizer.run()))
