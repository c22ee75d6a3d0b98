"""The role of active controller: a broker runs the controller, and its work for mirrors, while it
leads the metadata log."""

import asyncio
from collections.abc import Callable

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config import Config
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.quorum import MetadataQuorum
from ottla_broker.mirroring.synchronizer import MirrorSynchronizer
from ottla_broker.runtime import Runtime
from ottla_broker.wire.client import Client


class ControllerRole:
    """Starts and stops the controller when this broker becomes and ceases to be the active one.

    `controller`, `mirror_synchronizer`: None while this broker is not the active controller.
    `make_client`: returns a client of this cluster with the given client id.
    """

    def __init__(
        self,
        config: Config,
        image: MetadataImage,
        runtime: Runtime,
        failure_detector: FailureDetector,
        tasks: BackgroundTasks,
        make_client: Callable[[str], Client],
    ) -> None:
        self._config = config
        self._image = image
        self._runtime = runtime
        self._failure_detector = failure_detector
        self._background_tasks = tasks
        self._make_client = make_client
        self.controller: Controller | None = None
        self.mirror_synchronizer: MirrorSynchronizer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, quorum: MetadataQuorum) -> None:
        """Starts the controller; `quorum` has elected this broker."""
        self.controller = controller = Controller(
            self._image, quorum, self._runtime, self._config, self._config.node_id, self._failure_detector
        )
        self.mirror_synchronizer = synchronizer = MirrorSynchronizer(
            controller, self._image, self._config, quorum.cluster_id, self._make_client
        )
        self._tasks = [
            self._background_tasks.start(controller.run()),
            self._background_tasks.start(synchronizer.run()),
        ]

    def apply_changes(self, delta: MetadataDelta) -> None:
        """Called when the image has changed by `delta`."""
        if self.mirror_synchronizer is not None:
            self.mirror_synchronizer.apply_changes(delta)

    def end(self) -> None:
        """Stops the controller; another broker is elected, or none."""
        self.controller = self.mirror_synchronizer = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []
