"""What other parts of a broker use of its share groups, whose modules are imported at the first
use."""

from typing import Protocol

from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.coordination.share_group_requests import ShareStates


class StateTopicLeader(Protocol):
    """The share coordinator, as it learns which partitions of `__share_group_state` it leads."""

    async def load(self, partition: int, journal: PartitionJournal) -> None: ...

    def unload(self, partition: int) -> None: ...


class ShareGroupServices(Protocol):
    @property
    def coordinator(self) -> StateTopicLeader: ...

    @property
    def states(self) -> ShareStates: ...

    def close(self) -> None: ...
