"""A group coordinator with one partition, on virtual time."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import JoinRequest, JoinResult, SyncRequest
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_coordinator import GroupCoordinator, without_share_states
from ottla_broker.coordination.records import (
    OffsetCommit,
)
from ottla_broker.coordination.share_group_requests import ShareStatePersister
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record, iter_records
from tests.sim.virtual_loop import run_in_virtual_time
from tests.unit.coordination.memory_journal import MemoryJournal, virtual_runtime

TOPIC_ID = UUID(int=77)
SUBSCRIBED_TO_T = bytes.fromhex("000000000001000174")


class CoordinatorBroker:
    """A group coordinator with one partition, which can be restarted from its journal."""

    def __init__(self, settings: GroupCoordinatorConfig | None = None) -> None:
        self.journal = MemoryJournal()
        self.settings = settings or GroupCoordinatorConfig(offsets_retention_minutes=10)
        self.image = MetadataImage()
        self.share_states: Callable[[], ShareStatePersister] = without_share_states
        self.groups = self._new_coordinator(1)

    def _new_coordinator(self, seed: int) -> GroupCoordinator:
        return GroupCoordinator(
            virtual_runtime(seed),
            self.settings,
            CoordinatorMetadata(self.image),
            lambda: 1,
            _share_states=self.share_states,
        )

    async def start(self) -> "CoordinatorBroker":
        await self.groups.load(self.journal)
        return self

    async def restart(self) -> None:
        self.groups.close()
        self.groups = self._new_coordinator(2)
        await self.start()

    def records(self) -> list[Record]:
        return [record for _, record in iter_records(bytes(self.journal.log))]


def run_with_broker(
    test: Callable[[CoordinatorBroker], Awaitable[None]], settings: GroupCoordinatorConfig | None = None
) -> None:
    """Runs a test on virtual time."""

    async def main() -> None:
        broker = await CoordinatorBroker(settings).start()
        try:
            await test(broker)
        finally:
            broker.groups.close()

    run_in_virtual_time(main())


def join_request(member_id: str = "", metadata: bytes = b"", **additional: object) -> JoinRequest:
    """A JoinGroup request that is accepted without a member id."""
    return JoinRequest(
        member_id,
        None,
        "client",
        "/h",
        60_000,
        10_000,
        "consumer",
        (("range", metadata),),
        needs_member_id=False,
        **additional,  # type: ignore[arg-type]
    )


async def join_as_only_member(broker: CoordinatorBroker, metadata: bytes = b"") -> JoinResult:
    """Joins the group g and syncs, so that it is stable with one member."""
    joined = await broker.groups.join_group("g", join_request(metadata=metadata))
    request = SyncRequest(joined.member_id, None, joined.generation, None, None, {joined.member_id: b"mine"})
    synced = await broker.groups.sync_group("g", request)
    assert (synced.error, synced.assignment) == (ErrorCode.none, b"mine")
    assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    return joined


def commits(offset: int = 5, topic: str = "t", partition: int = 0) -> dict[tuple[str, int], OffsetCommit]:
    return {(topic, partition): OffsetCommit(offset, 1, "", 0, topic_id=TOPIC_ID)}
