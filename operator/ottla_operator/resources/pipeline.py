"""Pipeline: a Spark Structured Streaming application from topics to topics, files and tables.

The only model of a Pipeline: the operator generates the CRD and the pods from it, and the runner
(`ottla_spark`) reads its own configuration with it.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from ottla_operator.resources.common import (
    Column,
    Duration,
    IntOrString,
    ObjectName,
    ObjectRef,
    PodTemplate,
    Quantity,
    Resource,
    Status,
    Timestamp,
    TopicName,
)
from ottla_operator.resources.model import Json, Model, Rule, doc, exactly_one, listed
from ottla_operator.resources.object_store import Bucket, ObjectStore
from ottla_operator.resources.replacement import Replacement, Replaces
from ottla_operator.resources.sinks import Sink
from ottla_operator.resources.sources import Source
from ottla_operator.resources.transforms import Transform


class Dedupe(Model, frozen=True):
    """Deduplication of the streams' rows."""

    columns: Annotated[
        tuple[Column, ...], Meta(min_length=1, max_length=16, description="Columns that identify a row.")
    ]
    within: Annotated[
        Duration | None,
        doc(
            "Time for which a row is remembered, by the watermark's column. Defaults to no limit, so that state grows "
            "without bound."
        ),
    ] = None


class DeadLetter(Model, frozen=True):
    """Destination of records that do not decode and of rows that do not satisfy an expectation."""

    topic: Annotated[
        TopicName,
        doc("Topic for dead letters. Records keep their key and value; headers carry the reason and the origin."),
    ]
    max_rate: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        doc("Share of a batch's rows that may be dead letters. Above it, the pipeline fails. Defaults to 1: no limit."),
    ] = 1.0


class Trigger(Model, frozen=True):
    """When batches run."""

    interval: Annotated[Duration | None, doc("Time between the starts of consecutive batches.")] = None
    available_now: Annotated[bool, doc("true: process the records that exist, then finish.")] = False

    rules = (
        exactly_one("interval", "availableNow", message="a trigger has exactly one of interval and availableNow: true"),
        Rule(
            "!has(self.availableNow) || self.availableNow",
            "availableNow can only be true",
            lambda value: value.get("availableNow", True) is True,
            "availableNow",
        ),
    )


class Volume(Model, frozen=True):
    """PersistentVolumeClaim."""

    claim_name: Annotated[ObjectName | None, doc("Name of an existing PersistentVolumeClaim.")] = None
    size: Annotated[Quantity | None, doc("Size of a PersistentVolumeClaim that the operator creates.")] = None

    rules = (exactly_one("claimName", "size", message="a volume has exactly one of claimName and size"),)


class Checkpoint(Model, frozen=True):
    """Location of offsets and state. `ottla up` chooses one unless path or s3 is set."""

    path: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None, doc("Folder or URL that Spark can write to.")
    ] = None
    pvc: Annotated[Volume | None, doc("PersistentVolumeClaim.")] = None
    s3: Annotated[Bucket | None, doc("Folder in a bucket of an S3-compatible store.")] = None

    rules = (exactly_one("path", "pvc", "s3", message="a checkpoint has exactly one of path, pvc and s3"),)


class Stop(Model, frozen=True):
    """How the pipeline stops."""

    graceful: Annotated[
        Duration, doc("Time for the batch in flight to complete before it is aborted. Defaults to 30s.")
    ] = "30s"


class Driver(Model, frozen=True):
    """Spark's driver, which plans."""

    cores: Annotated[IntOrString | None, doc("CPU cores. Defaults to 1.")] = None
    memory: Annotated[
        Quantity | None, doc("Heap of its JVM, such as 1Gi; its pod requests Spark's overhead too. Defaults to 1Gi.")
    ] = None


class Executor(Model, frozen=True):
    """Spark's executors, which compute."""

    instances: Annotated[Annotated[int, Meta(ge=1, le=1000)] | None, doc("Number of executors. Defaults to 1.")] = None
    cores: Annotated[IntOrString | None, doc("CPU cores of each executor. Defaults to 1.")] = None
    memory: Annotated[
        Quantity | None,
        doc("Heap of each executor's JVM, such as 2Gi; its pod requests Spark's overhead too. Defaults to 1Gi."),
    ] = None


class Spark(Model, frozen=True):
    """Spark's resources and configuration."""

    image: Annotated[
        Annotated[str, Meta(max_length=512)] | None,
        doc("Image of driver and executors. Ignored by `ottla up`. Defaults to the operator's."),
    ] = None
    driver: Annotated[
        Driver | None,
        doc("Spark's driver, which plans. Ignored by `ottla up`, where conf can have spark.driver.memory."),
    ] = None
    executor: Annotated[
        Executor | None, doc("Spark's executors, which compute. Ignored by `ottla up`, which computes in the driver.")
    ] = None
    conf: Annotated[dict[str, str], doc("Spark configuration properties.")] = field(default_factory=dict)
    pod_template: Annotated[
        PodTemplate | None,
        doc(
            "Additions to the pods of driver and executors: imagePullSecrets, tolerations, nodeSelector, "
            "volumes, and so on. The container named spark stands for the driver's and the executors': its "
            "env, envFrom, volumeMounts and securityContext are added to theirs. Ignored by `ottla up`."
        ),
    ] = None


def _find_unknown_views(spec: dict[str, Json]) -> list[str]:
    """Fields of steps that name no source and no earlier step, with what they may name."""
    known, found = list(spec["sources"]), []
    for index, step in enumerate(spec.get("transforms", ())):
        state = step.get("transformWithState")
        read = {"union": step.get("union", ()), "transformWithState.from": (state["from"],) if state else ()}
        for field_, names in read.items():
            if unknown := ", ".join(repr(name) for name in names if name not in known):
                found.append(f"transforms[{index}].{field_}: {unknown} is none of {', '.join(known)}")
        known.append(step["name"])
    return found


def _steps_with_processing_time(spec: dict[str, Json]) -> list[str]:
    """Steps with timers by processing time. Spark always begins another batch for these."""
    return [
        repr(step["name"])
        for step in spec.get("transforms", ())
        if step.get("transformWithState", {}).get("timers") == "processingTime"
    ]


def _views(spec: dict[str, Json]) -> set[str]:
    """Names that sinks can read from."""
    return {*spec["sources"], *(step["name"] for step in spec.get("transforms", ()))}


class PipelineSpec(Model, frozen=True):
    """Desired state of the pipeline: what it reads, how it transforms that, and where it writes."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster whose topics are read and written.")]
    sources: Annotated[
        dict[str, Source],
        Meta(min_length=1, max_length=32, description="Topics that are read, by their name in SQL."),
    ]
    sinks: Annotated[
        tuple[Sink, ...],
        Meta(
            min_length=1,
            max_length=16,
            description="Destinations of rows. Each is a streaming query.",
            extra_json_schema=listed("atomic"),
        ),
    ]
    user_ref: Annotated[
        ObjectRef | None,
        doc(
            "User of that Cluster that the pipeline connects as, with authentication SCRAM or TLS. Where every "
            "listener asks for a login, it defaults to a User pipeline-<name> that the operator creates, with rules "
            "for the topics and the consumer group of this pipeline alone."
        ),
    ] = None
    transforms: Annotated[
        Annotated[tuple[Transform, ...], Meta(max_length=64)],
        doc("Steps in order. Each can read the sources and the steps before it.", listed("map", "name")),
    ] = ()
    dedupe: Annotated[Dedupe | None, doc("Deduplication of the streams' rows. Defaults to none.")] = None
    dead_letter: Annotated[
        DeadLetter | None,
        doc("Destination of records that cannot be processed. If not set, the first such record fails the pipeline."),
    ] = None
    trigger: Annotated[Trigger, doc("When batches run. Defaults to one immediately after the other.")] = Trigger()
    checkpoint: Annotated[
        Checkpoint | None,
        doc("Location of the pipeline's offsets and state. Required on Kubernetes, optional with `ottla up`."),
    ] = None
    s3: Annotated[
        ObjectStore | None,
        doc(
            "S3-compatible store of sinks' files and tables, and of a checkpoint without a store of its own. "
            "Defaults to AWS."
        ),
    ] = None
    consumer_group: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        doc("Consumer group that offsets are committed to, for monitoring. Defaults to ottla-pipeline-<name>."),
    ] = None
    stop: Annotated[Stop, doc("How the pipeline stops.")] = Stop()
    state: Annotated[
        Literal["running", "suspended"],
        doc("running, or suspended: stopped, with its checkpoint kept. Defaults to running."),
    ] = "running"
    replaces: Annotated[Replaces | None, doc("The version that this Pipeline replaces. Defaults to none.")] = None
    launcher: Annotated[
        Literal["SparkOperator", "Driver"] | None,
        doc(
            "What runs the pipeline on Kubernetes. SparkOperator: a SparkApplication of Kubeflow's Spark operator. "
            "Driver: a Deployment. A pipeline that has one keeps it while this field is not set. Defaults to "
            "SparkOperator where its CRD is installed, otherwise Driver."
        ),
    ] = None
    spark: Annotated[Spark, doc("Spark's resources and configuration.")] = Spark()

    rules = (
        Rule(
            None,
            "names of sources are SQL identifiers: letters, digits and _, not starting with a digit",
            lambda spec: all(name.isascii() and name.isidentifier() and len(name) <= 63 for name in spec["sources"]),
            "sources",
        ),
        Rule(
            "!has(self.transforms) || !self.transforms.exists(t, t.name in self.sources)",
            "a transform cannot have the name of a source",
            lambda spec: not {step["name"] for step in spec.get("transforms", ())} & set(spec["sources"]),
            "transforms",
            lambda spec: (
                f"{', '.join(repr(step['name']) for step in spec['transforms'] if step['name'] in spec['sources'])} "
                "is a source"
            ),
        ),
        Rule(
            None,
            "a step can only read sources and earlier steps",
            lambda spec: not _find_unknown_views(spec),
            "transforms",
            lambda spec: "; ".join(_find_unknown_views(spec)),
        ),
        Rule(
            "self.sinks.all(s, s.from in self.sources || (has(self.transforms) && self.transforms.exists(t, "
            "t.name == s.from)))",
            "a sink's `from` must name a source or a transform of this pipeline",
            lambda spec: {sink["from"] for sink in spec["sinks"]} <= _views(spec),
            "sinks",
            lambda spec: (
                ", ".join(sorted(repr(sink["from"]) for sink in spec["sinks"] if sink["from"] not in _views(spec)))
                + f" is none of {', '.join(sorted(_views(spec)))}"
            ),
        ),
        Rule(
            "!has(self.trigger) || !has(self.trigger.availableNow) || !has(self.transforms) || "
            "self.transforms.all(t, !has(t.transformWithState) || !has(t.transformWithState.timers) || "
            "t.transformWithState.timers != 'processingTime')",
            "a pipeline with availableNow never finishes with timers: processingTime",
            lambda spec: "availableNow" not in spec.get("trigger", {}) or not _steps_with_processing_time(spec),
            "trigger",
            lambda spec: f"{', '.join(_steps_with_processing_time(spec))} has them; use eventTime, or an interval",
        ),
        Rule(
            "!has(self.replaces) || !has(self.replaces.takeOver) || self.replaces.takeOver != 'WhenEqual' || "
            "self.sinks.all(s, has(s.compareWith))",
            "takeOver WhenEqual needs compareWith in every sink",
            lambda spec: (
                spec.get("replaces", {}).get("takeOver") != "WhenEqual"
                or all("compareWith" in sink for sink in spec["sinks"])
            ),
            "replaces",
            lambda spec: (
                f"{', '.join(sink.get('name', sink['from']) for sink in spec['sinks'] if 'compareWith' not in sink)} "
                "has none; use Manual or WhenCaughtUp where rows cannot be compared"
            ),
        ),
    )

    @property
    def python_references(self) -> dict[str, str]:
        """`file.py:name` of the pipeline's own Python, by the field that has it."""
        references: dict[str, str] = {}
        for index, step in enumerate(self.transforms):
            if step.python is not None:
                references[f"transforms[{index}].python"] = step.python
            if step.transform_with_state is not None:
                references[f"transforms[{index}].transformWithState.processor"] = step.transform_with_state.processor
        for index, sink in enumerate(self.sinks):
            if sink.foreach is not None:
                references[f"sinks[{index}].foreach.python"] = sink.foreach.python
        return references

    @property
    def streams(self) -> dict[str, Source]:
        return {name: source for name, source in self.sources.items() if source.mode == "stream"}

    @property
    def tables(self) -> dict[str, Source]:
        return {name: source for name, source in self.sources.items() if source.mode == "table"}


class RejectedRows(Model, frozen=True):
    """Rows that a rule has rejected since the driver started."""

    view: Annotated[str, doc("Source or step.")]
    rule: Annotated[str, doc("Name of the expectation, or undecoded.")]
    rows: Annotated[int, doc("Number of rows. Each counts for the first rule that it does not satisfy.")]


class PipelineStatus(Status, frozen=True):
    """Observed state of the pipeline."""

    state: Annotated[str | None, doc("Pending, Starting, Running, Finished, Failing, Suspended or Failed.")] = None
    input_rows_per_second: Annotated[float | None, doc("Rows read per second in the last batch.")] = None
    lag_records: Annotated[int | None, doc("Number of records that are not read yet.")] = None
    lag_seconds: Annotated[float | None, doc("Age of the oldest record that is not read yet.")] = None
    rejected_rows: Annotated[
        tuple[RejectedRows, ...] | None,
        doc("Rows that did not decode or did not satisfy an expectation.", listed("map", "view", "rule")),
    ] = None
    last_progress: Annotated[Timestamp | None, doc("Time at which the last batch completed.")] = None
    last_error: Annotated[Annotated[str, Meta(max_length=4096)] | None, doc("Last error.")] = None
    restarts: Annotated[int | None, doc("Number of restarts after failures.")] = None
    application: Annotated[str | None, doc("Name of the SparkApplication or Deployment.")] = None
    replacement: Annotated[Replacement | None, doc("Progress of the replacement of another Pipeline.")] = None


class Pipeline(Resource, frozen=True):
    """A Spark Structured Streaming application from topics to topics, files and tables."""

    kind: Literal["Pipeline"]
    spec: PipelineSpec
    status: PipelineStatus | None = None

    @property
    def consumer_group(self) -> str:
        return self.spec.consumer_group or f"ottla-pipeline-{self.metadata.name}"

    @property
    def uses_registry(self) -> bool:
        """True if the pipeline reads or writes records in the schema registry's framing."""
        sources, sinks = self.spec.sources.values(), self.spec.sinks
        of_sources = [it for source in sources for it in (source.format, source.key_format)]
        of_sinks = [it for sink in sinks for it in (sink.format, sink.key_format)]
        return any(it is not None and it.is_framed for it in (*of_sources, *of_sinks))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the Secrets that sinks and object stores need."""
        bucket = self.spec.checkpoint.s3 if self.spec.checkpoint is not None else None
        references = [it.secret_ref for it in (self.spec.s3, bucket) if it is not None]
        of_stores = {it.name for it in references if it is not None}
        return tuple(sorted(of_stores | {name for sink in self.spec.sinks for name in sink.secrets}))

    @property
    def transaction_prefix(self) -> str:
        """Prefix of the sinks' transactional ids and of the groups with their batch numbers."""
        return f"{self.consumer_group}.sink."
