"""A broker put together: its log directories, its metadata, its partitions and coordinators, and the order in which they come and go.

Start: log directories → register → metadata log → image → registration → partitions → coordinators. Stop is the reverse. Sockets are not here:
`server` serves a broker that has started.
"""

import asyncio
import logging
from uuid import UUID

from ottla_broker.config import (
    NODE_ID,
    Config,
)
from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.metadata.image import Image
from ottla_broker.metadata.register import Register
from ottla_broker.replication.partitions import Partitions
from ottla_broker.runtime import Runtime

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
METADATA_TOPIC_ID = UUID(int=1)  # the id that Kafka reserves for its own metadata topic


class Broker:
    """Everything that a request may need. Public attributes are the rooms; handlers call those."""

    def __init__(
        self, config: Config, register: Register, *, runtime: Runtime | None = None, disk: Disk | None = None
    ) -> None:
        self.config = config
        self.runtime = runtime or Runtime()
        self.node_id = config(NODE_ID)
        self.cluster_id = ""
        self.image = Image()
        self.partitions = Partitions(self.image)
        self.ready = False
        self._disk: Disk = disk or OsDisk()
        self._register = register
        self.directories: list[LogDir] = []
        self._background: set[asyncio.Task[None]] = set()
