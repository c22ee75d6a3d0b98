"""Pipeline: a Spark Structured Streaming application from topics to topics, files and tables."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from ottla_operator.resources.common import (
    Amount,
    Column,
    Duration,
    Identifier,
    ObjectName,
    ObjectRef,
    Quantity,
    Resource,
    Status,
    TopicName,
)
from ottla_operator.resources.model import Json, Model, Rule, Transition, exactly_one
from ottla_operator.resources.sinks import Sink

PYTHON_STEP: Final = r"^[^:]+\.py:[a-zA-Z_][a-zA-Z0-9_]*$"


class Format(Model):
    """How a record's value becomes columns."""

    type: Literal["json", "avro", "raw"] = Field(
        description="json and avro: the columns of `schema`. raw: key and value as bytes, for transforms to "
        "read themselves."
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        max_length=65_536,
        description="json: Spark's DDL, such as 'carrier STRING, delay DOUBLE'. avro: the schema as JSON text. "
        "Records that do not fit go to the dead-letter topic.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "(self.type == 'raw') != has(self.schema)",
            "json and avro need a schema; raw has none",
            lambda it: (it.get("type") == "raw") != ("schema" in it),
            "schema",
        ),
    )


class Watermark(Model):
    """How long late records are waited for."""

    column: Column = Field(description="The TIMESTAMP column that says when something happened.")
    delay: Duration = Field(
        description="How much later than the newest record another may come, such as '2 hours'. Later ones are "
        "left out of windows."
    )


class Source(Model):
    """A topic that is read."""

    topic: TopicName = Field(description="The topic's name on the brokers.")
    format: Format = Field(description="How a record's value becomes columns.")
    key: Column | None = Field(default=None, description="A column that the record's key is put into, as text.")
    watermark: Watermark | None = Field(
        default=None, description="How long late records are waited for; windows need it."
    )
    starting_offsets: Literal["earliest", "latest"] | None = Field(
        default=None,
        description="Where the first run begins: earliest (when not set) or latest. Later runs go on where the "
        "last one ended.",
    )
    max_offsets_per_trigger: int | None = Field(
        default=None, ge=1, description="Most records that one batch reads; not limited when not set."
    )
    on_data_loss: Literal["fail", "continue"] | None = Field(
        default=None,
        description="What to do when records were deleted before they were read: fail (when not set) or continue.",
    )
    mode: Literal["stream", "table"] | None = Field(
        default=None,
        description="stream (when not set): every record is a row. table: a compacted topic, read as the "
        "newest record of each key, to join streams with.",
    )
    isolation: Literal["read_committed", "read_uncommitted"] | None = Field(
        default=None,
        description="Whether records of transactions that are open or were aborted are left out "
        "(read_committed, when not set).",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.watermark) || !has(self.mode) || self.mode == 'stream'",
            "a watermark is for streams: a table has no late records",
            lambda it: "watermark" not in it or it.get("mode", "stream") == "stream",
            "watermark",
        ),
    )


class Expectation(Model):
    """Something that every row must fulfil."""

    name: Identifier = Field(description="Names it in dead letters and metrics.")
    sql: str = Field(min_length=1, max_length=4096, description="A SQL condition over the row; null counts as broken.")
    on_fail: Literal["deadLetter", "drop", "fail"] | None = Field(
        default=None,
        description="What becomes of a row that breaks it: it goes to the dead-letter topic (when not set), is "
        "dropped, or stops the pipeline.",
    )


class Transform(Model):
    """A step that makes a new view from sources and earlier steps."""

    name: Identifier = Field(description="The view's name, for later steps and sinks.")
    sql: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        description="A SELECT over sources and earlier steps by their names.",
    )
    python: str | None = Field(
        default=None,
        max_length=512,
        pattern=PYTHON_STEP,
        description="file.py:function, called with the views by name (dict[str, DataFrame]); returns a DataFrame.",
    )
    expect: Annotated[list[Expectation], Field(max_length=64)] | None = Field(
        default=None,
        description="What every row of the result must fulfil.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one("sql", "python", message="a transform is written in sql or in python, in exactly one of them"),
    )


class Dedupe(Model):
    """Leaves out rows of the streams that were seen before."""

    columns: Annotated[list[Column], Field(min_length=1, max_length=16)] = Field(
        description="Columns that together tell rows apart."
    )
    within: Duration | None = Field(
        default=None,
        description="How long a row is remembered, by the watermark's column; for ever when not set, which "
        "takes ever more memory.",
    )


class DeadLetter(Model):
    """Where rows go that cannot be decoded or break an expectation."""

    topic: TopicName = Field(
        description="The topic; records keep their key and value, and carry the reason and their origin in headers."
    )
    max_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of a batch's rows above which the pipeline fails instead; 1 when not set: never.",
    )


class Trigger(Model):
    """When batches run."""

    interval: Duration | None = Field(default=None, description="A batch begins this long after the one before began.")
    available_now: bool | None = Field(default=None, description="true: read what is there, then end.")

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one(
            "interval", "availableNow", message="a trigger is an interval or availableNow: true, exactly one of them"
        ),
        Rule(
            "!has(self.availableNow) || self.availableNow",
            "availableNow can only be true",
            lambda it: it.get("availableNow", True) is True,
            "availableNow",
        ),
    )


class Volume(Model):
    """A volume claim."""

    claim_name: ObjectName | None = Field(default=None, description="One that exists.")
    size: Quantity | None = Field(default=None, description="One that the operator makes, of this size.")

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one(
            "claimName",
            "size",
            message="a volume is an existing one (claimName) or a new one (size), exactly one of them",
        ),
    )


class S3(Model):
    """A folder in an object store."""

    bucket: str = Field(min_length=3, max_length=63, description="The bucket.")
    prefix: str | None = Field(
        default=None, max_length=512, description="The folder in it; without it, the pipeline's name."
    )
    endpoint: str | None = Field(default=None, max_length=512, description="URL of the store, where it is not AWS.")
    secret_ref: ObjectRef | None = Field(
        default=None,
        description="A Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without it, the pod's own identity.",
    )


class Checkpoint(Model):
    """Where the pipeline keeps how far it is, and its state. `ottla up` has a place of its own unless a path is given."""

    path: str | None = Field(
        default=None, min_length=1, max_length=1024, description="A folder or a URL that Spark can write to."
    )
    pvc: Volume | None = Field(default=None, description="A volume claim.")
    s3: S3 | None = Field(default=None, description="An object store.")

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one("path", "pvc", "s3", message="a checkpoint is in exactly one place: path, pvc or s3"),
    )


class Stop(Model):
    """How the pipeline ends when it is asked to."""

    graceful: Duration | None = Field(
        default=None, description="How long the batch in flight may take to end; 30s when not set."
    )


class Driver(Model):
    """The process that plans."""

    cores: Amount | None = Field(default=None, description="CPU cores; 1 when not set.")
    memory: Quantity | None = Field(default=None, description="Memory, such as 1Gi.")


class Executor(Model):
    """The processes that compute."""

    instances: int | None = Field(default=None, ge=1, le=1000, description="How many; 1 when not set.")
    cores: Amount | None = Field(default=None, description="CPU cores of each; 1 when not set.")
    memory: Quantity | None = Field(default=None, description="Memory of each, such as 2Gi.")


class Spark(Model):
    """What Spark runs with."""

    image: str | None = Field(
        default=None, max_length=512, description="The pipelines' image; without it, the operator's choice."
    )
    driver: Driver | None = Field(default=None, description="The process that plans.")
    executor: Executor | None = Field(
        default=None, description="The processes that compute. `ottla up` computes in the driver."
    )
    conf: dict[str, str] | None = Field(default=None, description="Spark's own settings.")


def _relations(spec: dict[str, Json]) -> set[str]:
    """Names that sinks may take rows from."""
    return {*spec["sources"], *(step["name"] for step in spec.get("transforms", ()))}


class PipelineSpec(Model):
    """What is read, what is made of it, and where it goes."""

    cluster_ref: ObjectRef = Field(description="The Cluster whose topics are read and written.")
    sources: Annotated[dict[str, Source], Field(min_length=1, max_length=32)] = Field(
        description="Topics that are read, each under the name that SQL knows it by."
    )
    transforms: Annotated[list[Transform], Field(max_length=64)] | None = Field(
        default=None,
        description="Steps, in order; each sees the sources and the steps before it.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    sinks: Annotated[list[Sink], Field(min_length=1, max_length=16)] = Field(
        description="Where rows go; each is a query of its own.", json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    dedupe: Dedupe | None = Field(default=None, description="Leaves out rows that were seen before.")
    dead_letter: DeadLetter | None = Field(
        default=None, description="Where rows go that cannot be decoded; without it, such a row stops the pipeline."
    )
    trigger: Trigger | None = Field(default=None, description="When batches run; without it, one after the other.")
    checkpoint: Checkpoint | None = Field(
        default=None, description="Where the pipeline keeps how far it is. Kubernetes needs it; `ottla up` does not."
    )
    consumer_group: str | None = Field(
        default=None,
        min_length=1,
        max_length=249,
        description="The consumer group that shows how far the pipeline is; without it, ottla-pipeline-<name>.",
    )
    stop: Stop | None = Field(default=None, description="How the pipeline ends when it is asked to.")
    state: Literal["running", "suspended"] | None = Field(
        default=None, description="running (when not set), or suspended: stopped, with its checkpoint kept."
    )
    launcher: Literal["SparkOperator", "Driver"] | None = Field(
        default=None,
        description="Who starts it on Kubernetes: kubeflow's Spark operator, or ours. Without it, the first "
        "where it is installed.",
    )
    spark: Spark | None = Field(default=None, description="What Spark runs with.")

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            None,
            "names of sources are names in SQL: letters, digits and _, not beginning with a digit",
            lambda spec: all(name.isascii() and name.isidentifier() and len(name) <= 63 for name in spec["sources"]),
            "sources",
        ),
        Rule(
            "self.sinks.all(s, s.from in self.sources || (has(self.transforms) && self.transforms.exists(t, "
            "t.name == s.from)))",
            "a sink's `from` must name a source or a transform of this pipeline",
            lambda spec: {sink["from"] for sink in spec["sinks"]} <= _relations(spec),
            "sinks",
            lambda spec: (
                f"{', '.join(sorted(repr(sink['from']) for sink in spec['sinks'] if sink['from'] not in _relations(spec)))} "
                f"is none of {', '.join(sorted(_relations(spec)))}"
            ),
        ),
        Rule(
            "!has(self.transforms) || !self.transforms.exists(t, t.name in self.sources)",
            "a transform cannot have the name of a source",
            lambda spec: not {step["name"] for step in spec.get("transforms", ())} & set(spec["sources"]),
            "transforms",
            lambda spec: (
                f"{', '.join(repr(step['name']) for step in spec['transforms'] if step['name'] in spec['sources'])} is one"
            ),
        ),
    )


class PipelineStatus(Status):
    """How the pipeline does."""

    state: str | None = Field(
        default=None, description="Pending, Starting, Running, Finished, Failing, Suspended or Failed."
    )
    input_rows_per_second: float | None = Field(default=None, description="Rows read per second in the last batch.")
    lag_records: int | None = Field(default=None, description="Records not yet read.")
    lag_seconds: float | None = Field(default=None, description="Age of the oldest of them.")
    last_progress: str | None = Field(
        default=None, description="When a batch last ended.", json_schema_extra={"format": "date-time"}
    )
    last_error: str | None = Field(default=None, max_length=4096, description="What last went wrong, in words.")
    restarts: int | None = Field(default=None, description="How often it was started again after a failure.")
    application: str | None = Field(default=None, description="The SparkApplication or Deployment that runs it.")


class Pipeline(Resource):
    """A Spark Structured Streaming application, from topics to topics, files and tables."""

    kind: Literal["Pipeline"]
    spec: PipelineSpec
    status: PipelineStatus | None = None

    @property
    def consumer_group(self) -> str:
        return self.spec.consumer_group or f"ottla-pipeline-{self.metadata.name}"
