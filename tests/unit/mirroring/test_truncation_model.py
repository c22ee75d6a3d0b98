"""Replicas truncate diverged records, on real logs, with leader changes and crashes at any step.

Invariants: records that a leader commits after its truncation are the source's and survive later
leader changes, and in the end every replica has the source's log. The model detects a missing rule.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.mirroring import failback_truncation
from ottla_broker.mirroring.failback_truncation import is_truncated, save_diverged_records
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_follower import last_record_epoch, move_into_leader_range, truncate_diverging
from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import iter_batches
from tests.unit.log.log_fixtures import NOW, batch
from tests.unit.replication.leader_partition import TOPIC, FakeClusterView

BROKERS = (1, 2, 3)
JOINED, TAIL_ENDS, SOURCE_ENDS = 10, 16, 24
Begin = Callable[[Partition, int, int], None]


@dataclass
class Model:
    """`joined_epoch` is −1 until a leader has reported the join offset. `begin` is the first action
    of a leader in an epoch. `truncates_in_the_middle`: of an epoch, which breaks a rule.
    """

    folder: Path
    random: Random
    begin: Begin = failback_truncation.truncate_if_saved
    truncates_in_the_middle: bool = False
    joined_epoch: int = -1
    committed: int = JOINED  # greatest high watermark of a leader that has truncated
    state: PartitionRecord = field(
        default_factory=lambda: PartitionRecord(TOPIC, 0, BROKERS, BROKERS, 1, leader_epoch=3)
    )
    replicas: dict[int, Partition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for broker in BROKERS:
            log = create_log(Storage(OsDisk(), Runtime()), self._at(broker), "t", 0, TOPIC, LogConfig())
            log_end = TAIL_ENDS if broker == 1 else self.random.randrange(JOINED, TAIL_ENDS + 1)
            for offset in range(log_end):
                log.append_as_leader(batch(1, size=offset + 1), leader_epoch=offset // 7, now_ms=NOW)
            log.advance_high_watermark(JOINED)
            self._host(broker, log)

    def _at(self, broker: int) -> str:
        return str(self.folder / f"{broker}" / "t-0")

    def _host(self, broker: int, log: PartitionLog) -> None:
        peers = FakeClusterView(joinable={one: one * 10 for one in BROKERS})
        partition = Partition("t", TOPIC, 0, log, self.state, broker, lambda: NOW, peers, peers.propose)
        self.replicas[broker] = partition
        if partition.is_leader:
            self._begin_leadership(partition)

    @property
    def leader(self) -> Partition:
        return self.replicas[self.state.leader]

    def _begin_leadership(self, partition: Partition) -> None:
        if self.joined_epoch >= 0:
            self.begin(partition, JOINED, self.joined_epoch)

    # --- steps

    def commit(self, **change: object) -> None:
        before = self.state
        self.state = msgspec.structs.replace(before, partition_epoch=before.partition_epoch + 1, **change)
        for partition in self.replicas.values():
            partition.update_registration(self.state)
        if self.state.leader_epoch != before.leader_epoch:
            self._begin_leadership(self.leader)

    def elect(self) -> None:
        """Elects an in-sync replica."""
        self.commit(leader=self.random.choice(self.state.isr), leader_epoch=self.state.leader_epoch + 1)

    def leave(self) -> None:
        """A follower leaves the ISR, unless it is the only one there."""
        others = [one for one in self.state.isr if one != self.state.leader]
        if len(others) > 1:
            leaving = self.random.choice(others)
            self.commit(isr=tuple(one for one in self.state.isr if one != leaving))

    def restart(self) -> None:
        """A process is killed and restarts with the content of its files."""
        broker = self.random.choice(BROKERS)
        self.replicas[broker].log.close()
        log = open_log(Storage(OsDisk(), Runtime()), self._at(broker), "t", 0, LogConfig(), LogCheckpoint())
        assert log.failure is None, log.failure
        log.advance_high_watermark(min(self.replicas[broker].log.high_watermark, log.end))
        if broker == self.state.leader:
            others = [one for one in self.state.isr if one != broker]
            peers = FakeClusterView()
            self.replicas[broker] = Partition("t", TOPIC, 0, log, self.state, broker, lambda: NOW, peers, peers.propose)
            self.commit(leader=self.random.choice(others or [broker]), leader_epoch=self.state.leader_epoch + 1)
        self._host(broker, log)

    def fetch(self) -> None:
        """A follower fetches once. An ISR that the leader proposes is accepted."""
        follower = self.replicas[self.random.choice([one for one in BROKERS if one != self.state.leader])]
        log, theirs = follower.log, self.leader.log
        newest = last_record_epoch(log)
        if newest != -1 and (newest != theirs.epochs.latest_epoch() or log.end > theirs.end):
            epoch, end = theirs.epochs.end_offset_for(newest, theirs.end)
            if epoch == -1:
                move_into_leader_range(log, theirs.start, theirs.end)
                return
            if epoch < newest or end < log.end:
                truncate_diverging(log, epoch, end)
                follower.follower.on_log_truncated()
                return
        broker = follower._broker_id
        self.leader.leader.record_fetch(broker, broker * 10, log.end, log.start)
        if (data := theirs.read(log.end, 200, up_to=theirs.end)) and log.end < theirs.end:
            log.append_as_follower(bytes(data), leader_epoch=self.state.leader_epoch)
        follower.follower.update_from_leader(theirs.high_watermark, theirs.start)
        if self.leader.pending_isr_change is not None:
            self.commit(isr=self.leader.pending_isr_change.isr)

    async def lead(self) -> None:
        """Reports the join offset, or mirrors one batch of the source."""
        log, epoch = self.leader.log, self.state.leader_epoch
        if self.joined_epoch >= 0 and is_truncated(log, JOINED, self.joined_epoch):
            if JOINED <= log.end < SOURCE_ENDS:
                self.leader.append_mirrored_records(bytearray(source_batch(log.end, epoch)))
            return
        if self.truncates_in_the_middle:
            self.joined_epoch = epoch - 1
            self.leader.truncate_as_leader(JOINED)
            return
        if log.end > JOINED:
            await save_diverged_records(log, JOINED, epoch)
        if self.random.random() < 0.7:  # else the leader crashes before the report, or another leads by then
            self.joined_epoch = epoch
            self.commit(leader_epoch=epoch + 1)

    # --- invariants

    def check(self) -> None:
        log = self.leader.log
        if self.joined_epoch < 0 or not is_truncated(log, JOINED, self.joined_epoch):
            return
        assert log.end >= self.committed, "committed records are in the leader's log"
        self.committed = max(self.committed, log.high_watermark)
        assert has_source_records(self.leader, self.committed), "committed records are the source's"

    async def settle(self) -> None:
        for _ in range(400):
            await self.lead()
            self.fetch()
            self.check()
        for partition in self.replicas.values():
            assert partition.log.end == partition.log.high_watermark == SOURCE_ENDS
            assert has_source_records(partition, SOURCE_ENDS)


def source_batch(offset: int, epoch: int) -> bytes:
    return batch(1, size=1000 + offset, base_offset=offset, epoch=epoch)


def has_source_records(partition: Partition, end: int) -> bool:
    """True if all batches from the join offset to `end` are the source's; they have another size
    than ours.
    """
    data = partition.log.read(JOINED, 1 << 20, up_to=end) if end > JOINED else b""
    return all(header.size > 1000 for _, header in iter_batches(data))


async def run_at_random(model: Model) -> None:
    """Takes random steps. Raises AssertionError if an invariant is violated."""
    for _ in range(model.random.randrange(12)):
        model.fetch()
    for _ in range(60):
        match model.random.randrange(10):
            case 0:
                model.elect()
            case 1:
                model.leave()
            case 2:
                model.restart()
            case 3 | 4 | 5:
                await model.lead()
            case _:
                model.fetch()
        model.check()
    await model.settle()


@pytest.mark.parametrize("seed", range(40))
def test_committed_records_are_not_lost_or_mixed(tmp_path: Path, seed: int) -> None:
    asyncio.run(run_at_random(Model(tmp_path, Random(seed))))


def count_failed_runs(folder: Path, seeds: int, **rules: Any) -> int:
    failed = 0
    for seed in range(seeds):
        try:
            asyncio.run(run_at_random(Model(folder / str(seed), Random(seed), **rules)))
        except AssertionError:
            failed += 1
    return failed


def test_model_detects_a_missing_truncation(tmp_path: Path) -> None:
    assert count_failed_runs(tmp_path, 2, begin=lambda partition, joined, epoch: None) == 2


def test_model_detects_a_truncation_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """The leader would count log ends that followers had before."""
    assert count_failed_runs(tmp_path, 20, truncates_in_the_middle=True) > 0
