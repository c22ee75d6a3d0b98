"""The quorum-state file: epoch, leader and vote survive a restart."""

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.log.disk import OsDisk
from ottla_broker.metadata.quorum_state import FILE_NAME, QuorumStateFile
from ottla_broker.metadata.raft_rules import ElectionState
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.runtime import uuid_text
from ottla_broker.wire.errors import KafkaError
from tests.unit.log.log_fixtures import runtime

ME = ReplicaKey(1, UUID(int=11))
OTHER = ReplicaKey(2, UUID(int=22))


def open_file(folder: Path) -> QuorumStateFile:
    return QuorumStateFile(str(folder), OsDisk(), runtime(), ME)


@pytest.mark.parametrize("state", [ElectionState(4, -1, OTHER), ElectionState(7, 2, None), ElectionState(9, 1, ME)])
def test_a_stored_state_is_read_back(tmp_path: Path, state: ElectionState) -> None:
    asyncio.run(open_file(tmp_path).store(state))
    assert open_file(tmp_path).stored == state


def test_the_file_has_kafkas_format(tmp_path: Path) -> None:
    asyncio.run(open_file(tmp_path).store(ElectionState(4, -1, OTHER)))
    assert json.loads((tmp_path / FILE_NAME).read_text()) == {
        "leaderId": -1,
        "leaderEpoch": 4,
        "votedId": 2,
        "votedDirectoryId": uuid_text(OTHER[1]),
        "data_version": 1,
    }


@pytest.mark.parametrize("content", ["{}", "torn", "[]", "3", '{"leaderId":1,"leaderEpoch":4,"data_version":0}'])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(KafkaError, match="quorum-state cannot be read"):
        open_file(tmp_path)


def write_file_of_version_0_1(folder: Path, *voters: tuple[int, UUID]) -> None:
    isr = [{"broker": broker, "directory": str(directory), "address": "a:1"} for broker, directory in voters]
    (folder / FILE_NAME).write_text(
        json.dumps({"cluster_id": "c", "epoch": 8, "leader": 1, "isr": isr, "replicas": []})
    )


def test_a_file_of_version_0_1_is_taken_over_by_its_only_voter(tmp_path: Path) -> None:
    write_file_of_version_0_1(tmp_path, ME)
    opened = open_file(tmp_path)
    assert opened.stored == ElectionState(8)
    assert [voter.key for voter in opened.register_voters] == [ME]


@pytest.mark.parametrize("voters", [(ME, OTHER), (OTHER,)])
def test_a_file_of_version_0_1_with_other_voters_is_refused(
    tmp_path: Path, voters: tuple[tuple[int, UUID], ...]
) -> None:
    write_file_of_version_0_1(tmp_path, *voters)
    with pytest.raises(KafkaError, match="scale the cluster down to one broker"):
        open_file(tmp_path)
