"""Formats of the records that a Pipeline reads and writes."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ottla_operator.resources.model import Model, Rule, Transition, at_most_one, doc

Subject = Annotated[str, Meta(min_length=1, max_length=1024)]
"""Name of a subject in the schema registry."""


class SchemaRef(Model, frozen=True):
    """Schema in the schema registry of the Cluster."""

    subject: Annotated[Subject | None, doc("Subject of the schema. Defaults to the topic's name with -value.")] = None
    version: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        doc("Version of the schema. Defaults to the latest when the pipeline starts."),
    ] = None
    id: Annotated[Annotated[int, Meta(ge=1)] | None, doc("Id of the schema, instead of subject and version.")] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.id) || (!has(self.subject) && !has(self.version))",
            "an id names one schema; it has neither subject nor version beside it",
            lambda value: "id" not in value or not {"subject", "version"} & value.keys(),
            "id",
        ),
    )


class Format(Model, frozen=True):
    """Decoding of record values into columns."""

    type: Annotated[
        Literal["json", "avro", "raw"],
        doc(
            "json and avro: the columns of the schema. avro: records in the framing of the schema registry, each "
            "decoded with the schema that it was written with. raw: the columns key and value, as bytes."
        ),
    ]
    schema: Annotated[
        Annotated[str, Meta(max_length=65_536)] | None,
        doc(
            "For json: a Spark DDL schema, such as 'carrier STRING, delay DOUBLE'. For avro: the reader's schema as "
            "JSON text. Records that do not match are dead letters."
        ),
    ] = None
    schema_ref: Annotated[
        SchemaRef | None, doc("For avro, instead of schema: the reader's schema in the schema registry.")
    ] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        at_most_one("schema", "schemaRef", message="a format has at most one of schema and schemaRef"),
        Rule(
            "(self.type == 'raw') != (has(self.schema) || has(self.schemaRef))",
            "json and avro need a schema; raw has none",
            lambda value: (value.get("type") == "raw") != ("schema" in value or "schemaRef" in value),
            "schema",
        ),
        Rule(
            "!has(self.schemaRef) || self.type == 'avro'",
            "schemaRef is only for avro; json has its columns in schema",
            lambda value: "schemaRef" not in value or value.get("type") == "avro",
            "schemaRef",
        ),
    )


class SinkFormat(Model, frozen=True):
    """Encoding of rows as record values."""

    type: Annotated[
        Literal["json", "avro"],
        doc("json: an object without a schema. avro: in the framing of the schema registry."),
    ]
    subject: Annotated[
        Subject | None, doc("Subject of the rows' schema. Only for avro. Defaults to the topic's name with -value.")
    ] = None
    register: Annotated[
        bool,
        doc(
            "true: the schema of the rows' columns is registered when the pipeline starts. false: rows are encoded "
            "with the latest schema of the subject, which has to have their columns. Only for avro. Defaults to true."
        ),
    ] = True

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "self.type == 'avro' || (!has(self.subject) && !has(self.register))",
            "subject and register are only for avro",
            lambda value: value.get("type") == "avro" or not {"subject", "register"} & value.keys(),
        ),
    )
