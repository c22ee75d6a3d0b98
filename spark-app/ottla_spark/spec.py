"""A Pipeline resource as this runner understands it.

The custom resource's schema lives with the operator; this is the same shape, read again here, because a pipeline must
also run without an operator (`python -m ottla_spark run`). Unknown fields are errors on both sides. Where the
resource leaves a field out, the default stands here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from ottla_spark.duration import milliseconds
from ottla_spark.trouble import Trouble

API_VERSION = "ottla.dev/v1alpha1"
OFFSET_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns that every source has beside its own: where a row came from. Sinks leave out columns that begin with `_`."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the resource: camelCase in YAML, snake_case here."""


class Format(Part, frozen=True):
    """How a record's value becomes columns: `json` by Spark's DDL, `raw` as the bytes in the column `value`."""

    type: Literal["json", "avro", "raw"]
    schema: str | None = None


class Watermark(Part, frozen=True):
    """How long late rows are waited for, by a TIMESTAMP column."""

    column: str
    delay: str


class Source(Part, frozen=True):
    """A topic that is read, as a stream of rows or as a table of the newest row of each key."""

    topic: str
    format: Format
    key: str | None = None
    watermark: Watermark | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: int | None = None
    on_data_loss: Literal["fail", "continue"] = "fail"
    mode: Literal["stream", "table"] = "stream"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"


class Expectation(Part, frozen=True):
    """A SQL condition that every row must fulfil; null counts as broken."""

    name: str
    sql: str
    on_fail: Literal["deadLetter", "drop", "fail"] = "deadLetter"


class Transform(Part, frozen=True):
    """A step: SQL over what came before, or `file.py:function` called with it."""

    name: str
    sql: str | None = None
    python: str | None = None
    expect: tuple[Expectation, ...] = ()


class Parquet(Part, frozen=True):
    """A folder of Parquet files."""

    path: str
    partition_by: tuple[str, ...] = ()


class Console(Part, frozen=True):
    """The process's own output."""

    rows: int = 20


class Iceberg(Part, frozen=True):
    """An Iceberg table. Needs Iceberg's jars, named in spark.conf."""

    table: str


class Delta(Part, frozen=True):
    """A Delta table. Needs Delta's jars, named in spark.conf."""

    path: str


class Named(Part, frozen=True):
    """A reference to an object of the same namespace."""

    name: str


class Jdbc(Part, frozen=True):
    """A table of a database. Needs the database's driver, named in spark.conf."""

    url: str
    table: str
    secret_ref: Named | None = None


class Sink(Part, frozen=True):
    """Where the rows of a source or transform go. Exactly one target is set."""

    source: str = msgspec.field(name="from")
    name: str | None = None
    topic: str | None = None
    parquet: Parquet | None = None
    iceberg: Iceberg | None = None
    delta: Delta | None = None
    jdbc: Jdbc | None = None
    console: Console | None = None
    key: tuple[str, ...] = ()
    output_mode: Literal["append", "update", "complete"] = "append"

    @property
    def query(self) -> str:
        """Name of the query, of its folder in the checkpoint and of its progress events."""
        return self.name or self.source


class Dedupe(Part, frozen=True):
    """Rows of streams that are left out because one with the same columns came before."""

    columns: tuple[str, ...]
    within: str | None = None


class DeadLetter(Part, frozen=True):
    """Topic for rows that do not decode or break an expectation.

    max_rate: share of a batch above which the pipeline fails.
    """

    topic: str
    max_rate: float = 1.0


class Trigger(Part, frozen=True):
    """When batches run: at an interval, or once for all that is there. Neither: one after the other."""

    interval: str | None = None
    available_now: bool = False


class Stop(Part, frozen=True):
    """How long a batch in flight may take to end when the pipeline is asked to stop."""

    graceful: str = "30s"


class Checkpoint(Part, frozen=True):
    """Where the pipeline keeps how far it is.

    Only `path` concerns the runner: the others become a path before it starts.
    """

    path: str | None = None
    pvc: dict[str, Any] | None = None
    s3: dict[str, Any] | None = None


class Spark(Part, frozen=True):
    """Spark's settings. Image, driver and executor concern who starts the runner."""

    image: str | None = None
    driver: dict[str, Any] | None = None
    executor: dict[str, Any] | None = None
    conf: dict[str, str] = {}


class Spec(Part, frozen=True):
    """What is read, what is made of it, and where it goes."""

    sources: dict[str, Source]
    sinks: tuple[Sink, ...]
    transforms: tuple[Transform, ...] = ()
    cluster_ref: Named | None = None
    dedupe: Dedupe | None = None
    dead_letter: DeadLetter | None = None
    trigger: Trigger = Trigger()
    checkpoint: Checkpoint | None = None
    consumer_group: str | None = None
    stop: Stop = Stop()
    state: Literal["running", "suspended"] = "running"
    launcher: Literal["SparkOperator", "Driver"] | None = None
    spark: Spark = Spark()


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A Pipeline resource and the folder that its relative paths start from."""

    name: str
    namespace: str
    spec: Spec
    folder: Path

    @property
    def group(self) -> str:
        """The consumer group that shows how far the pipeline is."""
        return self.spec.consumer_group or f"ottla-pipeline-{self.name}"

    @property
    def streams(self) -> dict[str, Source]:
        return {name: source for name, source in self.spec.sources.items() if source.mode == "stream"}


def load(path: Path, name: str | None = None) -> Pipeline:
    """The Pipeline in a file of YAML or JSON documents; `name` picks one where there are several.

    Trouble says what is wrong.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)]
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise Trouble(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    found = [document for document in documents if document.get("kind") == "Pipeline"]
    if name is not None:
        found = [document for document in found if document.get("metadata", {}).get("name") == name]
    if not found:
        raise Trouble(f"{path}: there is no resource of kind Pipeline{f' named {name}' if name else ''} in it")
    if len(found) > 1:
        names = ", ".join(str(document.get("metadata", {}).get("name")) for document in found)
        raise Trouble(f"{path}: there are several Pipelines in it ({names}); say which with --name")
    try:
        return of(found[0], path.parent)
    except Trouble as trouble:
        raise Trouble(f"{path}: {trouble}") from trouble


def of(document: dict[str, Any], folder: Path) -> Pipeline:
    """The Pipeline of a parsed resource. Trouble names the field."""
    if document.get("apiVersion") != API_VERSION:
        raise Trouble(f"apiVersion must be {API_VERSION}, not {document.get('apiVersion')!r}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise Trouble("metadata.name is missing")
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise Trouble("spec is missing")
    pipeline = Pipeline(
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        spec=_spec(spec),
        folder=folder.absolute(),
    )
    for fault in faults(pipeline.spec):
        raise Trouble(fault)
    return pipeline


_PartType = TypeVar("_PartType", bound=Part)


def _take(kind: type[_PartType], value: Any, where: str) -> _PartType:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `$")
        raise Trouble(f"{where}{at.rstrip('`')}: {said[0].lower()}{said[1:]}") from error


def _spec(value: dict[str, Any]) -> Spec:
    # Sources are taken one by one, because msgspec's messages do not say which key of a mapping they are about.
    sources = value.get("sources")
    if isinstance(sources, dict):
        for name, source in sources.items():
            _take(Source, source, f"spec.sources.{name}")
    return _take(Spec, value, "spec")


def faults(spec: Spec) -> Iterator[str]:
    """What the shape alone does not say, a sentence each."""
    if not spec.sources:
        yield "spec.sources: a pipeline reads at least one topic"
    if not spec.sinks:
        yield "spec.sinks: a pipeline writes somewhere"
    if spec.sources and all(source.mode == "table" for source in spec.sources.values()):
        yield "spec.sources: at least one source must be a stream; tables are only looked up"
    for name, source in spec.sources.items():
        yield from _source_faults(f"spec.sources.{name}", name, source)
    known = set(spec.sources)
    for at, transform in enumerate(spec.transforms):
        where = f"spec.transforms[{at}]"
        if transform.name in known:
            yield f"{where}.name: {transform.name!r} is taken by a source or an earlier transform"
        if not transform.name.isidentifier():
            yield f"{where}.name: {transform.name!r} is no name that SQL takes without quotes"
        if (transform.sql is None) == (transform.python is None):
            yield f"{where}: a transform is written in sql or in python, in exactly one of them"
        if transform.python is not None and ".py:" not in transform.python:
            yield f"{where}.python: write file.py:function, not {transform.python!r}"
        known.add(transform.name)
    yield from _sink_faults(spec, known)
    yield from _time_faults(spec)
    if spec.dead_letter is not None and not 0 < spec.dead_letter.max_rate <= 1:
        yield "spec.deadLetter.maxRate: a share of rows, above 0 and at most 1"


def _source_faults(where: str, name: str, source: Source) -> Iterator[str]:
    if not name.isidentifier() or name.startswith("_"):
        yield f"{where}: {name!r} is no name that SQL takes without quotes"
    if source.format.type == "avro":
        yield f"{where}.format.type: avro is not supported yet; json and raw are"
    if source.format.type == "json" and not source.format.schema:
        yield f"{where}.format.schema: json needs Spark's DDL of its columns, such as 'carrier STRING, delay DOUBLE'"
    if source.format.type == "raw" and source.format.schema is not None:
        yield f"{where}.format.schema: raw has no schema; its columns are key and value, as bytes"
    if source.watermark is not None and source.mode == "table":
        yield f"{where}.watermark: a watermark is for streams: a table has no late rows"
    if source.max_offsets_per_trigger is not None and source.max_offsets_per_trigger < 1:
        yield f"{where}.maxOffsetsPerTrigger: at least 1"


def _sink_faults(spec: Spec, known: set[str]) -> Iterator[str]:
    queries: set[str] = set()
    for at, sink in enumerate(spec.sinks):
        where = f"spec.sinks[{at}]"
        if sink.source not in known:
            names = ", ".join(sorted(known))
            yield f"{where}.from: there is no source or transform named {sink.source!r}; there are {names}"
        elif sink.source in spec.sources and spec.sources[sink.source].mode == "table":
            yield f"{where}.from: {sink.source!r} is a table; only streams can be written"
        targets = [sink.topic, sink.parquet, sink.iceberg, sink.delta, sink.jdbc, sink.console]
        if sum(target is not None for target in targets) != 1:
            yield f"{where}: a sink has exactly one target: topic, parquet, iceberg, delta, jdbc or console"
        for kind in ("iceberg", "delta", "jdbc"):
            if getattr(sink, kind) is not None:
                yield f"{where}.{kind}: {kind} is not supported yet; topic, parquet and console are"
        if sink.key and sink.topic is None:
            yield f"{where}.key: key is for a topic; other sinks have columns"
        if sink.parquet is not None and sink.output_mode == "update":
            yield f"{where}.outputMode: files cannot be updated; parquet takes append or complete"
        if sink.query in queries:
            yield f"{where}.name: two sinks are named {sink.query!r}; give each a name of its own"
        queries.add(sink.query)


def _time_faults(spec: Spec) -> Iterator[str]:
    times: list[tuple[str, str | None]] = [
        *(
            (f"spec.sources.{name}.watermark.delay", s.watermark.delay)
            for name, s in spec.sources.items()
            if s.watermark
        ),
        ("spec.trigger.interval", spec.trigger.interval),
        ("spec.stop.graceful", spec.stop.graceful),
        ("spec.dedupe.within", spec.dedupe.within if spec.dedupe else None),
    ]
    for where, text in times:
        if text is not None:
            try:
                milliseconds(text)
            except ValueError as error:
                yield f"{where}: {error}"
    if spec.trigger.available_now and spec.trigger.interval is not None:
        yield "spec.trigger: an interval or availableNow: true, not both"
