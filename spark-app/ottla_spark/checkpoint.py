"""What the runner keeps beside Spark's own checkpoint, and what it refuses to go on with.

    <checkpoint>/ottla.json          whose it is, its topics and their ids, state store, shuffle partitions
    <checkpoint>/letters.json        up to where records were searched for dead letters (see set_aside.py)
    <checkpoint>/queries/<name>/     Spark's: offsets, commits and state of each query

Spark's checkpoint knows topics by name. A topic that was deleted and made again, and has grown past the old offset,
looks to Spark like the old one, and records are passed over in silence. So each topic's id is kept, and another id is
an error. Spark also goes on with the shuffle partitions of batch 0 whatever is set later; saying so is better. And where two
pipelines have one checkpoint, the second would begin where the first one is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla_spark.cluster import Partition
from ottla_spark.progress import furthest_behind, offsets
from ottla_spark.session import SHUFFLE_PARTITIONS, STATE_STORE
from ottla_spark.spec import Pipeline
from ottla_spark.trouble import Trouble, in_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")

FACTS: Final = "ottla.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """What must not change while a checkpoint is used. `topics`: topic → id. `streams`: source → topic. `pipeline`: its name. The last two are empty in
    checkpoints that were begun before they were kept."""

    topics: Mapping[str, str]
    state_store: str
    shuffle_partitions: int
    pipeline: str = ""
    streams: Mapping[str, str] = field(default_factory=dict)


def facts(pipeline: Pipeline, topics: Mapping[str, str], conf: Mapping[str, str], cores: int) -> Facts:
    """The facts of a new checkpoint; where the pipeline sets no number of shuffle partitions, two for each core, at
    most 200."""
    return Facts(
        topics=dict(topics),
        state_store=conf[STATE_STORE],
        shuffle_partitions=int(conf.get(SHUFFLE_PARTITIONS, min(200, 2 * cores))),
        pipeline=pipeline.name,
        streams={name: source.topic for name, source in pipeline.streams.items()},
    )


def settle(
    kept: Facts | None, pipeline: Pipeline, topics: Mapping[str, str], conf: Mapping[str, str], cores: int
) -> Facts:
    """The facts to go on with: those kept, and topics that are new.

    Trouble when what is kept and what is now contradict.
    """
    now = facts(pipeline, topics, conf, cores)
    if kept is None:
        return now
    if kept.pipeline not in ("", now.pipeline):
        raise Trouble(f"the checkpoint is pipeline {kept.pipeline}'s; each pipeline needs one of its own")
    for name, topic in now.streams.items():
        if (before := kept.streams.get(name, topic)) != topic:
            raise Trouble(
                f"source {name} read the topic {before} when the checkpoint was begun, and now {topic}, where its offsets mean "
                "nothing; start with a new checkpoint"
            )
    check_topics(kept.topics, topics)
    if SHUFFLE_PARTITIONS in conf and now.shuffle_partitions != kept.shuffle_partitions:
        raise Trouble(
            f"the checkpoint was begun with {SHUFFLE_PARTITIONS}={kept.shuffle_partitions}, which cannot change; "
            f"the pipeline now says {now.shuffle_partitions}: set it back, or start with a new checkpoint"
        )
    if now.state_store != kept.state_store:
        raise Trouble(
            f"the checkpoint was begun with {STATE_STORE}={kept.state_store}, which cannot change; "
            "start with a new checkpoint"
        )
    return replace(now, topics={**kept.topics, **topics}, shuffle_partitions=kept.shuffle_partitions)


def check_topics(kept: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Trouble when a topic is another one than it was."""
    for topic, identity in now.items():
        if (before := kept.get(topic, identity)) != identity:
            raise Trouble(
                f"the topic {topic} was deleted and made anew since the checkpoint was begun "
                f"(its id was {before} and is {identity}), so the checkpoint's offsets mean nothing there; "
                "start with a new checkpoint"
            )


def ends_of(text: str) -> dict[Partition, int]:
    """The ends of a batch, by Spark's offset log: a line for its version, one for the batch, and one for each source, `-` where it has none yet."""
    found: dict[Partition, int] = {}
    for line in text.splitlines()[2:]:
        if line.startswith("{"):
            found = furthest_behind(found, offsets(line))
    return found


class Checkpoint:
    """The checkpoint's folder, on any file system that Spark can write to."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        self.location = location.rstrip("/")
        self._paths = jvm.org.apache.hadoop.fs.Path
        self._system = self._paths(self.location).getFileSystem(spark._jsc.hadoopConfiguration())

    def query(self, name: str) -> str:
        """Where Spark keeps a query's checkpoint."""
        return f"{self.location}/queries/{name}"

    def processed(self, name: str) -> dict[Partition, int]:
        """Up to where a query had processed, by Spark's own files; empty when it had not."""
        done = self._numbers(f"queries/{name}/commits")
        text = self.read_text(f"queries/{name}/offsets/{max(done)}") if done else None
        return {} if text is None else ends_of(text)

    def _numbers(self, folder: str) -> list[int]:
        """Names of the files in a folder that are numbers of batches."""
        path = self._paths(f"{self.location}/{folder}")
        if not self._system.exists(path):
            return []
        names = [str(it.getPath().getName()) for it in self._said(path, partial(self._system.listStatus, path))]
        return [int(it) for it in names if it.isdigit()]

    def read(self) -> Facts | None:
        """What was kept, or None when the checkpoint is new. Trouble when it cannot be read."""
        text = self.read_text(FACTS)
        if text is None:
            return None
        try:
            return Facts(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise Trouble(f"{self.location}/{FACTS} is damaged ({error})") from error

    def write(self, kept: Facts) -> None:
        """Keeps the facts."""
        self.write_text(FACTS, json.dumps(asdict(kept), indent=2))

    def read_text(self, name: str) -> str | None:
        """A small file's text, or None when there is none."""
        # Between the deletion of the old file and the renaming of the new one, the new one is whole and alone.
        for path in (self._paths(f"{self.location}/{name}"), self._paths(f"{self.location}/.{name}.new")):
            if self._system.exists(path):
                return self._said(path, partial(self._read, path))
        return None

    def write_text(self, name: str, text: str) -> None:
        """Replaces a small file: written beside it, then renamed."""
        path, beside = self._paths(f"{self.location}/{name}"), self._paths(f"{self.location}/.{name}.new")
        self._said(path, partial(self._replace, path, beside, text))

    def _read(self, path: Any) -> str:
        stream = self._system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _replace(self, path: Any, beside: Any, text: str) -> None:
        if not self._system.exists(path) and self._system.exists(beside):
            self._system.rename(beside, path)  # the last time ended in between: it is all there is
        stream = self._system.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._system.delete(path, False)
        if not self._system.rename(beside, path):
            raise Trouble(f"{path}: cannot be written")

    def _said(self, path: Any, do: Callable[[], _T]) -> _T:
        from py4j.protocol import Py4JJavaError

        try:
            return do()
        except Py4JJavaError as error:
            raise Trouble(f"{path}: {in_words(error)}") from error
