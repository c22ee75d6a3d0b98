"""Where a Pipeline's rows go."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ottla_operator.resources.common import Column, Identifier, ObjectRef, TopicName
from ottla_operator.resources.model import Model, Rule, Transition, exactly_one


class Parquet(Model):
    """A folder of Parquet files."""

    path: str = Field(
        min_length=1,
        max_length=1024,
        description="Where: a path (relative to the YAML with `ottla up`) or a URL such as s3a://bucket/folder.",
    )
    partition_by: list[Column] | None = Field(default=None, max_length=16, description="Columns that become folders.")


class Iceberg(Model):
    """An Iceberg table."""

    table: str = Field(
        min_length=1, max_length=255, description="catalog.database.table; the catalog is set up in spark.conf."
    )


class Delta(Model):
    """A Delta table."""

    path: str = Field(min_length=1, max_length=1024, description="Where: a path or a URL.")


class Jdbc(Model):
    """A table of a database."""

    url: str = Field(min_length=1, max_length=1024, pattern=r"^jdbc:", description="JDBC URL.")
    table: str = Field(min_length=1, max_length=255, description="The table that rows are appended to.")
    secret_ref: ObjectRef | None = Field(default=None, description="A Secret with user and password.")


class Console(Model):
    """The pipeline's own output, for trying things out."""

    rows: int | None = Field(
        default=None, ge=1, le=10_000, description="Most rows shown of each batch; 20 when not set."
    )


SINKS = ("topic", "parquet", "iceberg", "delta", "jdbc", "console")


class Sink(Model):
    """Where rows go."""

    name: Identifier | None = Field(
        default=None, description="Names the query, its checkpoint and its metrics; without it, the view's name."
    )
    from_: Identifier = Field(alias="from", description="The source or transform whose rows are written.")
    topic: TopicName | None = Field(
        default=None,
        description="A topic; rows are written as JSON. At least once: each record carries batch and sequence "
        "in headers, so that repeats can be told.",
    )
    parquet: Parquet | None = Field(default=None, description="A folder of Parquet files.")
    iceberg: Iceberg | None = Field(default=None, description="An Iceberg table.")
    delta: Delta | None = Field(default=None, description="A Delta table.")
    jdbc: Jdbc | None = Field(default=None, description="A table of a database.")
    console: Console | None = Field(default=None, description="The pipeline's own output.")
    key: Annotated[list[Column], Field(min_length=1, max_length=16)] | None = Field(
        default=None, description="topic: columns that make up the record's key, joined by |."
    )
    output_mode: Literal["append", "update", "complete"] | None = Field(
        default=None,
        description="append (when not set): rows that are final. update: rows that have changed. complete: the "
        "whole result, each time.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one(*SINKS, message=f"a sink has exactly one target: {', '.join(SINKS)}"),
        Rule(
            "!has(self.key) || has(self.topic)",
            "key is for a topic: other sinks have columns",
            lambda it: "key" not in it or "topic" in it,
            "key",
        ),
    )
