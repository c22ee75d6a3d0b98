"""Sinks of a Pipeline: destinations of its rows."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ottla_operator.resources.common import PYTHON_NAME, Column, Identifier, TopicName
from ottla_operator.resources.formats import SinkFormat
from ottla_operator.resources.model import Model, Rule, doc, exactly_one
from ottla_operator.resources.table_sinks import Delta, Iceberg, Jdbc


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


class ConsoleSink(Model, frozen=True):
    """Standard output of the pipeline, for debugging."""

    rows: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)], doc("Maximum number of rows printed for each batch. Defaults to 20.")
    ] = 20


class Foreach(Model, frozen=True):
    """Python function of the pipeline that receives each row."""

    python: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=PYTHON_NAME,
            description="file.py:function. Spark's executors call the function with each row, a pyspark.sql.Row.",
        ),
    ]


TABLE_SINKS: Final = ("iceberg", "delta", "jdbc")
"""Sinks that replace rows by their key in `update` mode."""
KEYED_SINKS: Final = ("topic", *TABLE_SINKS)
COMPARED_SINKS: Final = ("topic", "parquet", "iceberg", "delta")
"""Sinks whose rows Spark can read again."""
SINK_TARGETS: Final = ("topic", "parquet", *TABLE_SINKS, "foreach", "console")


def _any_of(fields: tuple[str, ...]) -> str:
    """CEL: at least one of the fields is set."""
    return " || ".join(f"has(self.{name})" for name in fields)


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
    iceberg: Annotated[Iceberg | None, doc("Iceberg table that rows are written to.")] = None
    delta: Annotated[Delta | None, doc("Delta table that rows are written to.")] = None
    jdbc: Annotated[Jdbc | None, doc("Database table that rows are written to.")] = None
    foreach: Annotated[
        Foreach | None,
        doc("Function that receives each row, at least once: a batch that runs again calls it again."),
    ] = None
    console: Annotated[ConsoleSink | None, doc("Prints rows to standard output.")] = None
    key: Annotated[
        Annotated[tuple[Column, ...], Meta(min_length=1, max_length=16)],
        doc(
            "Columns that identify a row. topic: the record key: their values joined by |, or as keyFormat encodes "
            "them. iceberg, delta, jdbc: columns by which outputMode update replaces rows."
        ),
    ] = ()
    key_format: Annotated[
        SinkFormat | None,
        doc("Encoding of the key's columns as a record with these columns. Only for topic. Defaults to text."),
    ] = None
    delete_when: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)] | None,
        doc(
            "SQL condition, also on columns that start with _, such as _op = 'd'. A row that satisfies it deletes the "
            "row of its key; in a topic it is a record without a value. NULL counts as false. Only for outputMode "
            "update with key."
        ),
    ] = None
    output_mode: Annotated[
        Literal["append", "update", "complete"],
        doc(
            "append: rows that are final. update: rows that have changed. complete: the whole result in each batch. "
            "Defaults to append."
        ),
    ] = "append"

    compare_with: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        doc(
            "Target of the same kind that the Pipeline in replaces writes: the name of a topic or of an Iceberg table, "
            "or the path of Parquet files or of a Delta table. Its rows are compared with those of this sink."
        ),
    ] = None

    rules = (
        exactly_one(*SINK_TARGETS, message=f"a sink has exactly one target: {', '.join(SINK_TARGETS)}"),
        Rule(
            f"!has(self.key) || {_any_of(KEYED_SINKS)}",
            f"key is only for {', '.join(KEYED_SINKS)}",
            lambda value: "key" not in value or any(name in value for name in KEYED_SINKS),
            "key",
        ),
        Rule(
            f"!has(self.outputMode) || self.outputMode != 'update' || has(self.key) || !({_any_of(TABLE_SINKS)})",
            f"outputMode update of {', '.join(TABLE_SINKS)} needs key, the columns by which rows are replaced",
            lambda value: (
                value.get("outputMode") != "update" or "key" in value or not any(it in value for it in TABLE_SINKS)
            ),
            "key",
        ),
        Rule(
            "!has(self.deleteWhen) || (has(self.key) && has(self.outputMode) && self.outputMode == 'update' && "
            f"({_any_of(KEYED_SINKS)}))",
            f"deleteWhen is only for {', '.join(KEYED_SINKS)} with outputMode update and key",
            lambda value: (
                "deleteWhen" not in value
                or ("key" in value and value.get("outputMode") == "update" and any(it in value for it in KEYED_SINKS))
            ),
            "deleteWhen",
        ),
        Rule(
            "!has(self.keyFormat) || (has(self.key) && has(self.topic))",
            "keyFormat is only for topic, and needs key: the columns of the record key",
            lambda value: "keyFormat" not in value or {"key", "topic"} <= value.keys(),
            "keyFormat",
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
        Rule(
            f"!has(self.compareWith) || {_any_of(COMPARED_SINKS)}",
            f"compareWith is only for {', '.join(COMPARED_SINKS)}; rows of other sinks cannot be read again",
            lambda value: "compareWith" not in value or any(name in value for name in COMPARED_SINKS),
            "compareWith",
        ),
        Rule(
            "!has(self.compareWith) || !has(self.topic) || !has(self.outputMode) || self.outputMode == 'append' || "
            "(self.outputMode == 'update' && has(self.key))",
            "compareWith of a topic needs outputMode append, or update with key: the records of other results depend "
            "on the batches",
            lambda value: (
                "compareWith" not in value
                or "topic" not in value
                or value.get("outputMode", "append") == "append"
                or (value["outputMode"] == "update" and "key" in value)
            ),
            "compareWith",
        ),
        *(
            Rule(
                f"!has(self.compareWith) || !has(self.{name}) || (self.{name}.type == 'json' && "
                f"!has(self.{name}.subject) && !has(self.{name}.register))",
                f"compareWith needs {name} to be json without the schema registry: elsewhere equal rows can have "
                "different bytes",
                lambda value, name=name: (  # type: ignore[misc]
                    "compareWith" not in value or name not in value or value[name] == {"type": "json"}
                ),
                name,
            )
            for name in ("format", "keyFormat")
        ),
    )

    @property
    def is_transactional(self) -> bool:
        return self.topic is not None and self.delivery == "exactlyOnce"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the Secrets that the sink needs."""
        reference = self.jdbc.secret_ref if self.jdbc is not None else None
        if self.iceberg is not None and self.iceberg.catalog is not None:
            reference = self.iceberg.catalog.secret_ref
        return () if reference is None else (reference.name,)

    @property
    def target(self) -> tuple[str, str]:
        """Kind of the target, and its name, its path, or its URL and table; empty for console and
        foreach.
        """
        kind = next(it for it in SINK_TARGETS if getattr(self, it) is not None)
        if self.topic is not None:
            return kind, self.topic
        if self.jdbc is not None:
            return kind, f"{self.jdbc.url} {self.jdbc.table}"
        named = self.parquet or self.delta
        return kind, named.path if named is not None else self.iceberg.table if self.iceberg is not None else ""

    @property
    def query_name(self) -> str:
        """Name of the streaming query, of its folder in the checkpoint and in its progress
        events.
        """
        return self.name or self.source
