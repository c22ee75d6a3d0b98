"""Rules of mirroring, each switched off on purpose (see `broken_rules`); in runs with two clusters."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring import failback, group_offsets, mirror_manager
from ottla_broker.mirroring.appended_offsets import Appending
from ottla_broker.mirroring.diverged_records import folder_of
from ottla_broker.mirroring.failover import Tell
from ottla_broker.mirroring.group_offsets import Committed, Place
from ottla_broker.mirroring.mirror_partition import FetchOutcome, Identical, MirrorPartition
from ottla_broker.mirroring.source_epochs import NO_EPOCH, Epochs
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.fetch_response import FetchResponsePartition


@contextmanager
def copies_do_not_say_which_epoch_they_hold() -> Iterator[None]:
    """A source that has lost what was copied is not told which leader epoch that was of, and notices nothing."""
    with patch.object(Identical, "last_record_epoch", lambda *_: NO_EPOCH):
        yield


@contextmanager
def failovers_wait_for_nobody() -> Iterator[None]:
    """The leader of a copy reports where its log ends before its in-sync replicas have all of it."""

    async def report_end(partition: Partition, me: int, source_end: int, tell: Tell) -> None:
        told = MirrorReport(
            me,
            partition.topic_id,
            partition.partition,
            partition.leader_epoch,
            end=partition.log.end,
            source_end=source_end,
        )
        await tell(partition.topic, told)

    with patch.object(mirror_manager, "report_end", report_end):
        yield


@contextmanager
def the_common_point_is_where_the_copy_ended() -> Iterator[None]:
    """What the old source wrote in epochs of which nothing was copied stays, where its offsets were copied ones."""

    def common_point(_: Epochs, original_end: int, __: Epochs, end: int) -> int:
        return min(original_end, end)

    with patch.object(failback, "common_point", common_point):
        yield


@contextmanager
def nothing_that_is_cut_off_is_saved() -> Iterator[None]:
    async def save(log: PartitionLog, offset: int, epoch: int) -> str:
        log.storage.disk.make_directory(folder := folder_of(log, offset, epoch))
        return folder

    with patch.object(failback, "save", save):
        yield


@contextmanager
def copies_are_open_for_writing() -> Iterator[None]:
    """As soon as they are there."""
    with patch.object(MetadataImage, "is_writable", lambda *_: True):
        yield


@contextmanager
def groups_are_copied_further_than_records() -> Iterator[None]:
    def due(
        there: Mapping[Place, Committed], here: Mapping[Place, Committed], _: Mapping[Place, int]
    ) -> dict[Place, Committed]:
        return {place: one for place, one in there.items() if place not in here or here[place].offset < one.offset}

    with patch.object(group_offsets, "due", due):
        yield


@contextmanager
def appending_goes_on_where_the_broker_remembers() -> Iterator[None]:
    """Who leads again goes on where it had come to itself, whatever its log says since."""
    properly, remembered = Appending.append, dict[Partition, int]()
    begun: list[Appending] = []

    def position(manner: Appending, copy: MirrorPartition) -> int:
        if all(one is not manner for one in begun):
            begun.append(manner)
            manner.asked_next = remembered.get(copy.partition, manner.asked_next)
        return manner.asked_next

    def append(manner: Appending, copy: MirrorPartition, got: FetchResponsePartition) -> FetchOutcome | None:
        outcome = properly(manner, copy, got)
        remembered[copy.partition] = manner.asked_next
        return outcome

    with (
        patch.object(Appending, "position", position),
        patch.object(Appending, "append", append),
        patch.object(Appending, "_recorded", lambda manner, _: manner.recorded),
    ):
        yield


BROKEN: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        copies_do_not_say_which_epoch_they_hold,
        failovers_wait_for_nobody,
        the_common_point_is_where_the_copy_ended,
        nothing_that_is_cut_off_is_saved,
        copies_are_open_for_writing,
        groups_are_copied_further_than_records,
        appending_goes_on_where_the_broker_remembers,
    )
}
