"""What a checkpoint fixes, and what becomes of those who change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla_spark.checkpoint import Checkpoint, Facts, check_topics, ends_of, settle
from ottla_spark.session import ROCKSDB, SHUFFLE_PARTITIONS, STATE_STORE
from ottla_spark.spec import API_VERSION, of
from ottla_spark.trouble import Trouble

CONF = {STATE_STORE: ROCKSDB}
STREAMS = {"s": "t"}
P = of(
    {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": "p"},
        "spec": {"sources": {"s": {"topic": "t", "format": {"type": "raw"}}}, "sinks": [{"from": "s", "console": {}}]},
    },
    Path(),
)


def test_a_new_checkpoint_takes_what_is_set_or_two_for_each_core() -> None:
    assert settle(None, P, {"t": "id"}, CONF, cores=4) == Facts({"t": "id"}, ROCKSDB, 8, "p", STREAMS)
    assert settle(None, P, {}, CONF, cores=500).shuffle_partitions == 200
    assert settle(None, P, {}, {**CONF, SHUFFLE_PARTITIONS: "3"}, cores=4).shuffle_partitions == 3


def test_an_old_one_keeps_its_partitions_whatever_the_machine() -> None:
    kept = Facts({"t": "id"}, ROCKSDB, 8)
    assert settle(kept, P, {"t": "id", "u": "new"}, CONF, cores=64) == Facts(
        {"t": "id", "u": "new"}, ROCKSDB, 8, "p", STREAMS
    )


def test_another_number_of_partitions_is_an_error_with_the_remedy() -> None:
    with pytest.raises(Trouble, match=r"begun with spark.sql.shuffle.partitions=8.*now says 4.*set it back"):
        settle(Facts({}, ROCKSDB, 8), P, {}, {**CONF, SHUFFLE_PARTITIONS: "4"}, cores=1)


def test_another_state_store_is_an_error() -> None:
    with pytest.raises(Trouble, match=r"cannot change"):
        settle(Facts({}, "other", 8), P, {}, CONF, cores=1)


def test_another_pipeline_s_is_an_error() -> None:
    with pytest.raises(Trouble, match=r"^the checkpoint is pipeline q's; each pipeline needs one of its own$"):
        settle(Facts({}, ROCKSDB, 8, "q"), P, {}, CONF, cores=1)


def test_another_topic_of_a_source_is_an_error() -> None:
    with pytest.raises(Trouble, match=r"^source s read the topic before when the checkpoint was begun, and now t, "):
        settle(Facts({}, ROCKSDB, 8, "p", {"s": "before", "gone": "x"}), P, {}, CONF, cores=1)


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    check_topics({"t": "a"}, {"t": "a", "new": "b"})
    with pytest.raises(Trouble, match=r"the topic t was deleted and made anew"):
        check_topics({"t": "a"}, {"t": "b"})


@dataclass
class Files:
    """A file system of Hadoop's, by whose side one can be killed. `dies_at`: the name of the call."""

    there: dict[str, bytes] = field(default_factory=dict)
    dies_at: str = ""

    def _lives(self, call: str) -> None:
        if call == self.dies_at:
            raise InterruptedError

    def exists(self, path: str) -> bool:
        return path in self.there

    def open(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(readAllBytes=lambda: self.there[path], close=lambda: None)

    def create(self, path: str, overwrite: bool) -> SimpleNamespace:
        self.there[path] = b""

        def write(data: bytearray) -> None:
            self._lives("write")
            self.there[path] = bytes(data)

        return SimpleNamespace(write=write, close=lambda: None)

    def delete(self, path: str, recursive: bool) -> None:
        self.there.pop(path, None)

    def rename(self, old: str, new: str) -> bool:
        self._lives("rename")
        self.there[new] = self.there.pop(old)
        return True

    def killed_at(self, call: str, write: str) -> None:
        self.dies_at = call
        with pytest.raises(InterruptedError):
            kept(self).write_text("f", write)
        self.dies_at = ""


def kept(files: Files) -> Checkpoint:
    made = Checkpoint.__new__(Checkpoint)
    made.location, made._system, made._paths = "c", files, cast(Any, str)
    return made


def test_a_small_file_is_whole_wherever_one_is_killed_and_however_often() -> None:
    files = Files()
    kept(files).write_text("f", "first")
    files.killed_at("write", "second")
    assert kept(files).read_text("f") == "first"
    files.killed_at("rename", "second")
    assert kept(files).read_text("f") == "second"
    files.killed_at("write", "third")
    assert kept(files).read_text("f") == "second"
    kept(files).write_text("f", "fourth")
    assert (kept(files).read_text("f"), list(files.there)) == ("fourth", ["c/f"])


def test_the_ends_of_a_batch_are_read_from_spark_s_own_file() -> None:
    batch = '{"batchWatermarkMs":0,"batchTimestampMs":1763805000000,"conf":{}}'
    text = f'v1\n{batch}\n{{"t":{{"0":5,"1":7}}}}\n-\n{{"t":{{"0":3}},"u":{{"0":1}}}}'
    assert ends_of(text) == {("t", 0): 3, ("t", 1): 7, ("u", 0): 1}
    assert ends_of(f"v1\n{batch}") == ends_of("") == {}
