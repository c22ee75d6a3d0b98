"""Sinks of a Pipeline: destinations of its rows."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, field

from ottla_operator.resources.common import Column, Identifier, ObjectRef, TopicName
from ottla_operator.resources.formats import SinkFormat
from ottla_operator.resources.model import Model, Rule, Transition, doc, exactly_one


class Parquet(Model, frozen=True):
    """Folder of Parquet files."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            description="Path, relative to the YAML file with `ottla up`, or URL such as s3a://bucket/folder.",
        ),
    ]
    partition_by: Annotated[
        Annotated[tuple[Column, ...], Meta(max_length=16)], doc("Columns whose values become folders.")
    ] = ()


class Iceberg(Model, frozen=True):
    """Iceberg table."""

    table: Annotated[
        str,
        Meta(min_length=1, max_length=255, description="catalog.database.table. spark.conf configures the catalog."),
    ]


class Delta(Model, frozen=True):
    """Delta table."""

    path: Annotated[str, Meta(min_length=1, max_length=1024, description="Path or URL of the table.")]


class Jdbc(Model, frozen=True):
    """Table of a database."""

    url: Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^jdbc:", description="JDBC URL.")]
    table: Annotated[str, Meta(min_length=1, max_length=255, description="Table that rows are appended to.")]
    secret_ref: Annotated[ObjectRef | None, doc("Secret with user and password.")] = None


class Console(Model, frozen=True):
    """Standard output of the pipeline, for debugging."""

    rows: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)], doc("Maximum number of rows printed for each batch. Defaults to 20.")
    ] = 20


SINK_TARGETS: Final = ("topic", "parquet", "iceberg", "delta", "jdbc", "console")


class Sink(Model, frozen=True):
    """Destination of rows. Each sink is a streaming query."""

    source: Annotated[Identifier, doc("Source or transform whose rows are written.")] = field(name="from")
    name: Annotated[
        Identifier | None,
        doc("Name of the query, of its checkpoint and of its metrics. Defaults to the value of from."),
    ] = None
    topic: Annotated[
        TopicName | None,
        doc(
            "Topic that rows are written to. Headers carry the batch and a sequence number that is unique in the batch."
        ),
    ] = None
    format: Annotated[
        SinkFormat | None, doc("Encoding of rows as record values. Only for topic. Defaults to json.")
    ] = None
    delivery: Annotated[
        Literal["exactlyOnce", "atLeastOnce"],
        doc(
            "exactlyOnce: rows are written in transactions, and a consumer with isolation.level=read_committed reads "
            "each row once, also after a crash. atLeastOnce: without transactions; a batch that runs again after a "
            "crash writes its rows again. Only for topic. Defaults to exactlyOnce."
        ),
    ] = "exactlyOnce"
    parquet: Annotated[Parquet | None, doc("Folder of Parquet files that rows are written to.")] = None
    iceberg: Annotated[Iceberg | None, doc("Iceberg table that rows are written to. Not implemented yet.")] = None
    delta: Annotated[Delta | None, doc("Delta table that rows are written to. Not implemented yet.")] = None
    jdbc: Annotated[Jdbc | None, doc("Database table that rows are written to. Not implemented yet.")] = None
    console: Annotated[Console | None, doc("Prints rows to standard output.")] = None
    key: Annotated[
        Annotated[tuple[Column, ...], Meta(min_length=1, max_length=16)],
        doc("Columns whose values, joined by |, are the record key. Only for topic."),
    ] = ()
    output_mode: Annotated[
        Literal["append", "update", "complete"],
        doc(
            "append: rows that are final. update: rows that have changed. complete: the whole result in each batch. "
            "Defaults to append."
        ),
    ] = "append"

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one(*SINK_TARGETS, message=f"a sink has exactly one target: {', '.join(SINK_TARGETS)}"),
        Rule(
            "!has(self.key) || has(self.topic)",
            "key is only for topic; other sinks have columns",
            lambda value: "key" not in value or "topic" in value,
            "key",
        ),
        Rule(
            "!has(self.format) || has(self.topic)",
            "format is only for topic",
            lambda value: "format" not in value or "topic" in value,
            "format",
        ),
        Rule(
            "!has(self.delivery) || has(self.topic)",
            "delivery is only for topic; the guarantee of other sinks is fixed",
            lambda value: "delivery" not in value or "topic" in value,
            "delivery",
        ),
    )

    @property
    def is_transactional(self) -> bool:
        return self.topic is not None and self.delivery == "exactlyOnce"

    @property
    def query_name(self) -> str:
        """Name of the streaming query, of its folder in the checkpoint and in its progress
        events.
        """
        return self.name or self.source
