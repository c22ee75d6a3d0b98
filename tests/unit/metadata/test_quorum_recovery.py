"""Orders to recover a cluster: stored, carried out by the next start, and repeated after a
crash.
"""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.log.disk import OsDisk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.metadata.quorum import ReplicaDescription
from ottla_broker.metadata.quorum_recovery import FILE_NAME, RecoveryOrder, RecoveryOrders
from ottla_broker.metadata.quorum_state import QuorumStateFile
from ottla_broker.metadata.raft_rules import ElectionState, EpochAndOffset
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.wire.errors import KafkaError
from tests.unit.log.log_fixtures import runtime

LEADS = RecoveryOrder("old", "new", 9, leads=True, leader_address="a:1", survivors=(1, 4))
FOLLOWS = RecoveryOrder("old", "new", 9, leads=False, leader_address="a:1")


class Start:
    """One start of broker 1 with two log directories, until `stop`."""

    def __init__(self, folder: Path) -> None:
        disk, shared = OsDisk(), runtime()
        self.dirs = [
            LogDir.attach(str(folder / name), disk=disk, runtime=shared, node_id=1, cluster_id="old") for name in "ab"
        ]
        self.orders = RecoveryOrders(self.dirs, disk, shared)

    def store(self, order: RecoveryOrder, *, receiver: UUID | None = None, leader: int = -1) -> None:
        me = self.dirs[0].directory_id
        replica = ReplicaDescription(ReplicaKey(1, me), "a:1", leader, 4, EpochAndOffset(4, 10), 9, ())
        asyncio.run(self.orders.store(order, receiver or me, replica))

    def stop(self) -> None:
        asyncio.run(self.close())

    async def close(self) -> None:
        for log_dir in self.dirs:
            await log_dir.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of broker 1, with a metadata log in its first log directory."""
    log = tmp_path / "a" / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (log / "kept").write_text("records")
    return tmp_path


def open_log_dirs(folder: Path) -> list[LogDir]:
    return [
        LogDir.attach(str(folder / name), disk=OsDisk(), runtime=runtime(), node_id=1, cluster_id=None) for name in "ab"
    ]


def test_the_new_leader_keeps_its_log_under_a_newer_epoch_and_the_new_cluster_id(folder: Path) -> None:
    start = Start(folder)
    me = start.dirs[0].directory_id
    start.store(LEADS)
    assert [log_dir.cluster_id for log_dir in start.dirs] == ["old", "old"], (
        "a running broker's directories are not changed"
    )
    assert start.orders.carry_out() == LEADS
    start.stop()
    log = folder / "a" / "__cluster_metadata-0"
    assert (log / "kept").exists()
    assert QuorumStateFile(str(log), OsDisk(), runtime(), ReplicaKey(1, me)).stored == ElectionState(9)
    again = open_log_dirs(folder)
    assert [(log_dir.cluster_id, log_dir.previous_cluster_id) for log_dir in again] == 2 * [("new", "old")]
    assert again[0].directory_id == me
    for log_dir in again:
        asyncio.run(log_dir.close())


def test_a_follower_moves_its_log_away(folder: Path) -> None:
    start = Start(folder)
    start.store(FOLLOWS)
    assert start.orders.carry_out() == FOLLOWS
    start.stop()
    assert not (folder / "a" / "__cluster_metadata-0").exists()
    assert (folder / "a" / "__cluster_metadata-0.old-stray" / "kept").read_text() == "records"


@pytest.mark.parametrize("order", [LEADS, FOLLOWS])
def test_an_interrupted_recovery_is_repeated_at_the_next_start(folder: Path, order: RecoveryOrder) -> None:
    start = Start(folder)
    start.store(order)
    start.dirs[1].move_to_cluster("new")  # the machine stops here
    assert start.orders.carry_out() == order
    new_log = folder / "a" / "__cluster_metadata-0"
    new_log.mkdir(exist_ok=True)
    (new_log / "copied").write_text("of the leader")
    assert start.orders.carry_out() == order
    assert (new_log / "copied").exists(), "records fetched from the new leader must stay"
    start.orders.complete()
    assert start.orders.carry_out() is None
    start.stop()


def test_an_order_for_another_disk_for_another_cluster_or_for_a_cluster_with_a_leader_is_refused(folder: Path) -> None:
    start = Start(folder)
    with pytest.raises(KafkaError, match="another disk"):
        start.store(LEADS, receiver=UUID(int=7))
    with pytest.raises(KafkaError, match="in cluster old"):
        start.store(RecoveryOrder("other", "new", 9, leads=True, leader_address=""))
    with pytest.raises(KafkaError, match="has a leader, broker 2"):
        start.store(LEADS, leader=2)
    assert not (folder / "a" / FILE_NAME).exists()
    start.stop()
