"""The interfaces of share groups for other parts of a broker. The modules that implement them are
imported at their first use."""

from typing import Protocol

from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.coordination.share_group_requests import ShareStatePersister


class StateTopicLeader(Protocol):
    """The calls by which a coordinator, such as the share coordinator, learns which partitions of
    its internal topic this broker leads."""

    async def load(self, journal: PartitionJournal) -> None: ...

    def unload(self, partition: int) -> None: ...


class ShareGroupServices(Protocol):
    @property
    def coordinator(self) -> StateTopicLeader: ...

    @property
    def states(self) -> ShareStatePersister: ...

    def close(self) -> None: ...
