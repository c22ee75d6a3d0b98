"""What a broker has promised, as its file says it."""

from pathlib import Path

import pytest

from ottla_broker.log.disk import OsDisk
from ottla_broker.metadata.quorum_state import FILE_NAME, QuorumState
from ottla_broker.wire.errors import KafkaError
from tests.unit.log.log_fixtures import runtime


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            '{"leaderId":1,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}',
            r"quorum-state is Apache Kafka's.*new folder in log\.dirs",
        ),
        ("{}", "quorum-state cannot be read: .*cluster_id"),
        ("torn", "quorum-state cannot be read"),
        ("[]", "quorum-state cannot be read"),
        ("3", "quorum-state cannot be read"),
    ],
)
def test_a_file_that_is_none_of_ours_is_told_in_words(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(KafkaError, match=said):
        QuorumState(str(tmp_path), OsDisk(), runtime())
