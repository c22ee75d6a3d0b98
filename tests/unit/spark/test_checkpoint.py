"""Checkpoint metadata: what it stores, and the changes of a pipeline that it rejects."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla_spark.errors import PipelineError
from ottla_spark.spark_conf import ROCKSDB, SHUFFLE_PARTITIONS, STATE_STORE
from ottla_spark.streaming.checkpoint import (
    Checkpoint,
    CheckpointMetadata,
    check_topic_ids,
    parse_offset_log,
    resume_metadata,
)
from tests.unit.spark.small_pipeline import small_pipeline

CONF = {STATE_STORE: ROCKSDB}
STREAMS = {"s": "t"}
PIPELINE = small_pipeline()


def test_new_checkpoint_has_the_configured_shuffle_partitions_or_two_for_each_core() -> None:
    assert resume_metadata(None, PIPELINE, {"t": "id"}, CONF, cores=4) == CheckpointMetadata(
        {"t": "id"}, ROCKSDB, 8, "p", STREAMS
    )
    assert resume_metadata(None, PIPELINE, {}, CONF, cores=500).shuffle_partitions == 200
    assert resume_metadata(None, PIPELINE, {}, {**CONF, SHUFFLE_PARTITIONS: "3"}, cores=4).shuffle_partitions == 3


def test_existing_checkpoint_keeps_its_shuffle_partitions_on_another_machine() -> None:
    stored = CheckpointMetadata({"t": "id"}, ROCKSDB, 8)
    assert resume_metadata(stored, PIPELINE, {"t": "id", "u": "new"}, CONF, cores=64) == CheckpointMetadata(
        {"t": "id", "u": "new"}, ROCKSDB, 8, "p", STREAMS
    )


def test_changed_shuffle_partitions_are_an_error_with_a_remedy() -> None:
    with pytest.raises(PipelineError, match=r"created with spark.sql.shuffle.partitions=8.*now says 4.*set it back"):
        resume_metadata(CheckpointMetadata({}, ROCKSDB, 8), PIPELINE, {}, {**CONF, SHUFFLE_PARTITIONS: "4"}, cores=1)


def test_changed_state_store_is_an_error() -> None:
    with pytest.raises(PipelineError, match=r"cannot change"):
        resume_metadata(CheckpointMetadata({}, "other", 8), PIPELINE, {}, CONF, cores=1)


def test_checkpoint_of_another_pipeline_is_an_error() -> None:
    with pytest.raises(
        PipelineError, match=r"^the checkpoint belongs to pipeline q; each pipeline needs its own checkpoint$"
    ):
        resume_metadata(CheckpointMetadata({}, ROCKSDB, 8, "q"), PIPELINE, {}, CONF, cores=1)


def test_changed_topic_of_a_source_is_an_error() -> None:
    with pytest.raises(
        PipelineError, match=r"^source s read the topic before when the checkpoint was created, and now reads t, "
    ):
        resume_metadata(
            CheckpointMetadata({}, ROCKSDB, 8, "p", {"s": "before", "gone": "x"}), PIPELINE, {}, CONF, cores=1
        )


def test_re_created_topic_is_an_error() -> None:
    check_topic_ids({"t": "a"}, {"t": "a", "new": "b"})
    with pytest.raises(PipelineError, match=r"the topic t was re-created"):
        check_topic_ids({"t": "a"}, {"t": "b"})


@dataclass
class FakeFileSystem:
    """A Hadoop file system. The call named `dies_at` raises, as if the process were killed."""

    files: dict[str, bytes] = field(default_factory=dict)
    dies_at: str = ""

    def _die_at(self, call: str) -> None:
        if call == self.dies_at:
            raise InterruptedError

    def exists(self, path: str) -> bool:
        return path in self.files

    def open(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(readAllBytes=lambda: self.files[path], close=lambda: None)

    def create(self, path: str, overwrite: bool) -> SimpleNamespace:
        self.files[path] = b""

        def write(data: bytearray) -> None:
            self._die_at("write")
            self.files[path] = bytes(data)

        return SimpleNamespace(write=write, close=lambda: None)

    def delete(self, path: str, recursive: bool) -> None:
        self.files.pop(path, None)

    def rename(self, old: str, new: str) -> bool:
        self._die_at("rename")
        self.files[new] = self.files.pop(old)
        return True

    def kill_at(self, call: str, text: str) -> None:
        self.dies_at = call
        with pytest.raises(InterruptedError):
            checkpoint_on(self).write_text("f", text)
        self.dies_at = ""


def checkpoint_on(files: FakeFileSystem) -> Checkpoint:
    made = Checkpoint.__new__(Checkpoint)
    made.location, made._file_system, made._new_path = "c", files, cast(Any, str)
    return made


def test_file_is_complete_wherever_the_process_is_killed() -> None:
    files = FakeFileSystem()
    checkpoint_on(files).write_text("f", "first")
    files.kill_at("write", "second")
    assert checkpoint_on(files).read_text("f") == "first"
    files.kill_at("rename", "second")
    assert checkpoint_on(files).read_text("f") == "second"
    files.kill_at("write", "third")
    assert checkpoint_on(files).read_text("f") == "second"
    checkpoint_on(files).write_text("f", "fourth")
    assert (checkpoint_on(files).read_text("f"), list(files.files)) == ("fourth", ["c/f"])


def test_end_offsets_are_parsed_from_sparks_offset_log() -> None:
    batch = '{"batchWatermarkMs":0,"batchTimestampMs":1763805000000,"conf":{}}'
    text = f'v1\n{batch}\n{{"t":{{"0":5,"1":7}}}}\n-\n{{"t":{{"0":3}},"u":{{"0":1}}}}'
    assert parse_offset_log(text) == {("t", 0): 3, ("t", 1): 7, ("u", 0): 1}
    assert parse_offset_log(f"v1\n{batch}") == parse_offset_log("") == {}
