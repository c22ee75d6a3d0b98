"""Rules of mirroring, each switched off on purpose (see `broken_rules`); in runs with two clusters."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring import failback, group_offsets, mirror_manager
from ottla_broker.mirroring.appended_offsets import AppendedOffsets
from ottla_broker.mirroring.diverged_records import diverged_folder
from ottla_broker.mirroring.group_offsets import CommittedOffset, TopicPartition
from ottla_broker.mirroring.identical_offsets import IdenticalOffsets
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition, SendReport
from ottla_broker.mirroring.source_epochs import NO_EPOCH, EpochEntries
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.replica_fetch import FetchResponsePartition


@contextmanager
def copies_do_not_say_which_epoch_they_hold() -> Iterator[None]:
    """A source that has lost what was copied is not told which leader epoch that was of, and notices nothing."""
    with patch.object(IdenticalOffsets, "last_record_epoch", lambda *_: NO_EPOCH):
        yield


@contextmanager
def failovers_wait_for_nobody() -> Iterator[None]:
    """The leader of a copy reports where its log ends before its in-sync replicas have all of it."""

    async def report_end_offset(partition: Partition, me: int, source_end: int, tell: SendReport) -> None:
        told = MirrorReport(
            me,
            partition.topic_id,
            partition.partition,
            partition.leader_epoch,
            end=partition.log.end,
            source_end=source_end,
        )
        await tell(partition.topic, told)

    with patch.object(mirror_manager, "report_end_offset", report_end_offset):
        yield


@contextmanager
def the_common_point_is_where_the_copy_ended() -> Iterator[None]:
    """What the old source wrote in epochs of which nothing was copied stays, where its offsets were copied ones."""

    def find_divergence_offset(_: EpochEntries, original_end: int, __: EpochEntries, end: int) -> int:
        return min(original_end, end)

    with patch.object(failback, "find_divergence_offset", find_divergence_offset):
        yield


@contextmanager
def nothing_that_is_cut_off_is_saved() -> Iterator[None]:
    async def save_diverged_records(log: PartitionLog, offset: int, epoch: int) -> str:
        log.storage.disk.make_directory(folder := diverged_folder(log, offset, epoch))
        return folder

    with patch.object(failback, "save_diverged_records", save_diverged_records):
        yield


@contextmanager
def copies_are_open_for_writing() -> Iterator[None]:
    """As soon as they are there."""
    with patch.object(MetadataImage, "is_writable", lambda *_: True):
        yield


@contextmanager
def groups_are_copied_further_than_records() -> Iterator[None]:
    def offsets_to_commit(
        there: Mapping[TopicPartition, CommittedOffset],
        here: Mapping[TopicPartition, CommittedOffset],
        _: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, CommittedOffset]:
        return {place: one for place, one in there.items() if place not in here or here[place].offset < one.offset}

    with patch.object(group_offsets, "offsets_to_commit", offsets_to_commit):
        yield


@contextmanager
def appending_goes_on_where_the_broker_remembers() -> Iterator[None]:
    """Who leads again goes on where it had come to itself, whatever its log says since."""
    properly, remembered = AppendedOffsets.append_batches, dict[Partition, int]()
    begun: list[AppendedOffsets] = []

    def position(manner: AppendedOffsets, copy: MirroredPartition) -> int:
        if all(one is not manner for one in begun):
            begun.append(manner)
            manner.next_offset = remembered.get(copy.partition, manner.next_offset)
        return manner.next_offset

    def append_batches(
        manner: AppendedOffsets, copy: MirroredPartition, got: FetchResponsePartition
    ) -> FetchOutcome | None:
        outcome = properly(manner, copy, got)
        remembered[copy.partition] = manner.next_offset
        return outcome

    with (
        patch.object(AppendedOffsets, "position", position),
        patch.object(AppendedOffsets, "append_batches", append_batches),
        patch.object(AppendedOffsets, "_position_in_log", lambda manner, _: manner.recorded_position),
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
