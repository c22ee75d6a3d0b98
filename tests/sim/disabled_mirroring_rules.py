"""Rules of mirroring, each disabled on purpose: the checks of runs with two clusters must detect
it.

`RULES` has the patches by name. They exist only here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ottla_broker.log.file_names import TopicPartition
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla_broker.mirroring import credential_sync, failback, group_offsets, mirror_manager, synchronizer
from ottla_broker.mirroring.appended_offsets import AppendedOffsets
from ottla_broker.mirroring.credential_sync import CredentialChanges, CredentialKey, Credentials
from ottla_broker.mirroring.failback_truncation import diverged_folder
from ottla_broker.mirroring.group_offsets import CommittedOffset
from ottla_broker.mirroring.identical_offsets import IdenticalOffsets
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition, SendReport
from ottla_broker.mirroring.source_epochs import NO_EPOCH, EpochEntries
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.fetch_response import FetchResponsePartition


@contextmanager
def mirror_fetches_without_epoch() -> Iterator[None]:
    """Mirrors do not send the epoch of their last record, so a source that lost records does not
    detect the divergence.
    """
    with patch.object(IdenticalOffsets, "last_record_epoch", lambda *_: NO_EPOCH):
        yield


@contextmanager
def failover_does_not_wait_for_isr() -> Iterator[None]:
    """The leader of a copy reports its end offset before its in-sync replicas have all records."""

    async def report_end_offset(partition: Partition, me: int, source_end: int, send_report: SendReport) -> None:
        report = MirrorReport(
            me,
            partition.topic_id,
            partition.partition,
            partition.leader_epoch,
            end=partition.log.end,
            source_end=source_end,
        )
        await send_report(partition.topic, report)

    with patch.object(mirror_manager, "report_end_offset", report_end_offset):
        yield


@contextmanager
def divergence_offset_is_end_of_copy() -> Iterator[None]:
    """Records of epochs that were not copied stay in the old source's log at copied offsets."""

    def find_divergence_offset(_: EpochEntries, original_end: int, __: EpochEntries, end: int) -> int:
        return min(original_end, end)

    with patch.object(failback, "find_divergence_offset", find_divergence_offset):
        yield


@contextmanager
def truncated_records_not_saved() -> Iterator[None]:
    async def save_diverged_records(log: PartitionLog, offset: int, epoch: int) -> str:
        log.storage.disk.make_directory(folder := diverged_folder(log, offset, epoch))
        return folder

    with patch.object(failback, "save_diverged_records", save_diverged_records):
        yield


@contextmanager
def mirrored_topics_writable() -> Iterator[None]:
    """Mirrored topics accept producers from the beginning."""
    with patch.object(MetadataImage, "is_writable", lambda *_: True):
        yield


@contextmanager
def own_credentials_not_kept() -> Iterator[None]:
    """A mirror treats the target's own credentials as if it had copied them."""
    plan = credential_sync.plan_credential_sync

    def plan_credential_sync(
        mirror: str, patterns: Sequence[str], at_source: Credentials, at_target: Credentials, *others: Any
    ) -> CredentialChanges:
        return plan(mirror, patterns, at_source, at_target, dict.fromkeys(at_target, mirror), others[1])

    async def sync_credentials(
        controller: Controller, mirror: str, to_set: Credentials, to_remove: Sequence[CredentialKey]
    ) -> None:
        changes: list[MetadataRecord] = [
            *(UserScramCredentialRecord(*key, credential, mirror) for key, credential in to_set.items()),
            *(RemoveUserScramCredentialRecord(*key) for key in to_remove),
        ]
        await controller._writer.apply_plan(lambda: changes)

    with (
        patch.object(synchronizer, "plan_credential_sync", plan_credential_sync),
        patch.object(Controller, "sync_credentials", sync_credentials),
    ):
        yield


@contextmanager
def offsets_copied_beyond_records() -> Iterator[None]:
    def offsets_to_commit(
        at_source: Mapping[TopicPartition, CommittedOffset],
        at_target: Mapping[TopicPartition, CommittedOffset],
        _: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, CommittedOffset]:
        return {tp: one for tp, one in at_source.items() if tp not in at_target or at_target[tp].offset < one.offset}

    with patch.object(group_offsets, "offsets_to_commit", offsets_to_commit):
        yield


@contextmanager
def appending_resumes_from_memory() -> Iterator[None]:
    """A leader that is elected again resumes from the position in its memory instead of the one in
    its log.
    """
    original, positions = AppendedOffsets.append_batches, dict[Partition, int]()
    started: list[AppendedOffsets] = []

    def position(offsets: AppendedOffsets, copy: MirroredPartition) -> int:
        if all(one is not offsets for one in started):
            started.append(offsets)
            offsets.next_offset = positions.get(copy.partition, offsets.next_offset)
        return offsets.next_offset

    def append_batches(
        offsets: AppendedOffsets, copy: MirroredPartition, got: FetchResponsePartition
    ) -> FetchOutcome | None:
        outcome = original(offsets, copy, got)
        positions[copy.partition] = offsets.next_offset
        return outcome

    with (
        patch.object(AppendedOffsets, "position", position),
        patch.object(AppendedOffsets, "append_batches", append_batches),
        patch.object(AppendedOffsets, "_position_in_log", lambda offsets, _: offsets.recorded_position),
    ):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        mirror_fetches_without_epoch,
        failover_does_not_wait_for_isr,
        divergence_offset_is_end_of_copy,
        truncated_records_not_saved,
        mirrored_topics_writable,
        own_credentials_not_kept,
        offsets_copied_beyond_records,
        appending_resumes_from_memory,
    )
}
OF_DIVERGED_COPIES = (divergence_offset_is_end_of_copy,)
"""Rules that concern failing back to a copy that has diverged."""
