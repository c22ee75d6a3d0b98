"""The runner's files beside Spark's checkpoint, and the changes of a pipeline that they detect.

    <checkpoint>/ottla.json          pipeline, topics and their ids, state store, shuffle partitions
    <checkpoint>/letters.json        offsets up to which records were searched for dead letters
    <checkpoint>/writers-<name>.json  number of writers of a transactional sink's last batch
    <checkpoint>/table-<name>.json   version of a reference table, whose files are in tables/<name>/
    <checkpoint>/maintenance-<name>.json  time of a lake table's last maintenance
    <checkpoint>/queries/<name>/     Spark's offsets, commits and state of each query

Spark's checkpoint identifies topics by name. A topic that was deleted, re-created and has grown
past the old offset looks unchanged to Spark, and records are skipped silently. So topic ids are
stored, and another id is an error. Spark also keeps the number of shuffle partitions that batch 0
had and ignores another; here another is an error. A second pipeline with the same checkpoint would
resume where the first one is, so the pipeline's name is stored too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ottla_operator.resources.object_store import is_s3
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError, describe_error
from ottla_spark.progress import TopicPartition, minimum_offsets, parse_offsets
from ottla_spark.spark_conf import SHUFFLE_PARTITIONS, STATE_STORE

_T = TypeVar("_T")

METADATA_FILE: Final = "ottla.json"
_MAX_DEFAULT_SHUFFLE_PARTITIONS: Final = 200


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """Properties that must not change while a checkpoint is in use.

    topics: topic → id. streams: source → topic. pipeline: name. The last two are empty in
    checkpoints that were created before they were stored.
    """

    topics: Mapping[str, str]
    state_store: str
    shuffle_partitions: int
    pipeline: str = ""
    streams: Mapping[str, str] = field(default_factory=dict)


def new_metadata(
    pipeline: PipelineDefinition, topics: Mapping[str, str], conf: Mapping[str, str], cores: int
) -> CheckpointMetadata:
    """Metadata of a new checkpoint. The default of shuffle partitions is two for each core, at most
    200.
    """
    default_partitions = min(_MAX_DEFAULT_SHUFFLE_PARTITIONS, 2 * cores)
    return CheckpointMetadata(
        topics=dict(topics),
        state_store=conf[STATE_STORE],
        shuffle_partitions=int(conf.get(SHUFFLE_PARTITIONS, default_partitions)),
        pipeline=pipeline.name,
        streams={name: source.topic for name, source in pipeline.spec.streams.items()},
    )


def resume_metadata(
    stored: CheckpointMetadata | None,
    pipeline: PipelineDefinition,
    topics: Mapping[str, str],
    conf: Mapping[str, str],
    cores: int,
) -> CheckpointMetadata:
    """Metadata to resume with: the pipeline's, with the stored topics and shuffle partitions.
    Raises PipelineError if the pipeline contradicts what is stored.
    """
    current = new_metadata(pipeline, topics, conf, cores)
    if stored is None:
        return current
    if stored.pipeline not in ("", current.pipeline):
        raise PipelineError(
            f"the checkpoint belongs to pipeline {stored.pipeline}; each pipeline needs its own checkpoint"
        )
    for name, topic in current.streams.items():
        if (before := stored.streams.get(name, topic)) != topic:
            raise PipelineError(
                f"source {name} read the topic {before} when the checkpoint was created, and now reads {topic}, "
                "where its offsets are not valid; start with a new checkpoint"
            )
    check_topic_ids(stored.topics, topics)
    if SHUFFLE_PARTITIONS in conf and current.shuffle_partitions != stored.shuffle_partitions:
        raise PipelineError(
            f"the checkpoint was created with {SHUFFLE_PARTITIONS}={stored.shuffle_partitions}, which cannot change; "
            f"the pipeline now says {current.shuffle_partitions}: set it back, or start with a new checkpoint"
        )
    if current.state_store != stored.state_store:
        raise PipelineError(
            f"the checkpoint was created with {STATE_STORE}={stored.state_store}, which cannot change; "
            "start with a new checkpoint"
        )
    return replace(current, topics={**stored.topics, **topics}, shuffle_partitions=stored.shuffle_partitions)


def check_topic_ids(stored: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Raises PipelineError if a topic was re-created."""
    for topic, topic_id in current.items():
        if (before := stored.get(topic, topic_id)) != topic_id:
            raise PipelineError(
                f"the topic {topic} was re-created since the checkpoint was created "
                f"(its id was {before} and is {topic_id}), so the checkpoint's offsets are not valid; "
                "start with a new checkpoint"
            )


def parse_offset_log(text: str) -> dict[TopicPartition, int]:
    """End offsets of a batch from Spark's offset log, the smallest of a partition that several
    sources read.

    The log's lines are a version, the batch's metadata, and the offsets of each source: `-` if the
    source has none yet.
    """
    ends: dict[TopicPartition, int] = {}
    for line in text.splitlines()[2:]:
        if line.startswith("{"):
            ends = minimum_offsets(ends, parse_offsets(line))
    return ends


class Checkpoint:
    """The folder of a checkpoint, on any file system that Spark can write to."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        self.location = location.rstrip("/")
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._file_system = self._new_path(self.location).getFileSystem(spark._jsc.hadoopConfiguration())

    def query_location(self, name: str) -> str:
        """Folder of Spark's checkpoint of a query."""
        return f"{self.location}/queries/{name}"

    def query_end_offsets(self, name: str) -> dict[TopicPartition, int]:
        """End offsets of a query's last committed batch; empty if it has none."""
        committed = self._batch_numbers(f"queries/{name}/commits")
        text = self.read_text(f"queries/{name}/offsets/{max(committed)}") if committed else None
        return {} if text is None else parse_offset_log(text)

    def unfinished_batch(self, name: str) -> int | None:
        """Number of the batch that a query had begun and not committed, which runs again; None if
        there is none.
        """
        begun = max(self._batch_numbers(f"queries/{name}/offsets"), default=None)
        return begun if begun not in self._batch_numbers(f"queries/{name}/commits") else None

    def query_id(self, name: str) -> str:
        """Id that Spark gave a query when its checkpoint was created. To be called after the query
        has started; before, it raises PipelineError.
        """
        text = self.read_text(f"queries/{name}/metadata")
        if text is None:
            raise PipelineError(f"{self.query_location(name)} has no file metadata")
        return str(json.loads(text)["id"])

    def _batch_numbers(self, folder: str) -> list[int]:
        """The batch numbers among the names of a folder's files. Empty if there is no folder."""
        path = self._new_path(f"{self.location}/{folder}")
        if not self._file_system.exists(path):
            return []
        files = self._call(path, partial(self._file_system.listStatus, path))
        names = [str(file.getPath().getName()) for file in files]
        return [int(name) for name in names if name.isdigit()]

    def read_metadata(self) -> CheckpointMetadata | None:
        """None if the checkpoint is new. Raises PipelineError if the file cannot be read."""
        text = self.read_text(METADATA_FILE)
        if text is None:
            return None
        try:
            return CheckpointMetadata(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise PipelineError(f"{self.location}/{METADATA_FILE} is corrupt ({error})") from error

    def write_metadata(self, metadata: CheckpointMetadata) -> None:
        self.write_text(METADATA_FILE, json.dumps(asdict(metadata), indent=2))

    def read_text(self, name: str) -> str | None:
        """Text of a file; None if it does not exist."""
        # `write_text` deletes the old file before it renames the new one. In between, the new one
        # is complete.
        for path in (self._new_path(f"{self.location}/{name}"), self._new_path(f"{self.location}/.{name}.new")):
            if self._file_system.exists(path):
                return self._call(path, partial(self._read, path))
        return None

    def write_text(self, name: str, text: str) -> None:
        """Replaces a file as a whole: writes a temporary file and renames it. An object store needs
        no temporary file, because it shows an object only once it is complete.
        """
        path = self._new_path(f"{self.location}/{name}")
        if is_s3(self.location):
            self._call(path, partial(self._write, path, text))
        else:
            temporary = self._new_path(f"{self.location}/.{name}.new")
            self._call(path, partial(self._replace, path, temporary, text))

    def make_folder(self, name: str) -> None:
        path = self._new_path(f"{self.location}/{name}")
        self._call(path, partial(self._file_system.mkdirs, path))

    def list_folder(self, name: str) -> frozenset[str]:
        """Names of the files and folders in a folder."""
        path = self._new_path(f"{self.location}/{name}")
        return frozenset(
            str(it.getPath().getName()) for it in self._call(path, partial(self._file_system.listStatus, path))
        )

    def delete_folder(self, name: str) -> None:
        path = self._new_path(f"{self.location}/{name}")
        self._call(path, partial(self._file_system.delete, path, True))

    def _read(self, path: Any) -> str:
        stream = self._file_system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _write(self, path: Any, text: str) -> None:
        stream = self._file_system.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _replace(self, path: Any, temporary: Any, text: str) -> None:
        if not self._file_system.exists(path) and self._file_system.exists(temporary):
            self._file_system.rename(temporary, path)  # the last write was interrupted before its rename
        self._write(temporary, text)
        self._file_system.delete(path, False)
        if not self._file_system.rename(temporary, path):
            raise PipelineError(f"{path}: cannot be written")

    def _call(self, path: Any, operation: Callable[[], _T]) -> _T:
        """Runs a file operation. Raises PipelineError for Java's errors."""
        try:
            return operation()
        except Py4JJavaError as error:
            raise PipelineError(f"{path}: {describe_error(error)}") from error
