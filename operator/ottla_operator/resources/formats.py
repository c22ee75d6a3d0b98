"""Formats of the records that a Pipeline reads and writes."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ottla_operator.resources.model import Model, Rule, at_most_one, doc

Subject = Annotated[str, Meta(min_length=1, max_length=1024)]
"""Name of a subject in the schema registry."""
MESSAGE_NAME: Final = r"^[A-Za-z_][\w.]*$"
MessageName = Annotated[str, Meta(min_length=1, max_length=1024, pattern=MESSAGE_NAME)]
"""Name of a Protobuf message: with its package, or as nested messages in the file are named."""
FRAMED: Final = ("avro", "protobuf")
"""Types that are always in the framing of the schema registry."""


class SchemaRef(Model, frozen=True):
    """Schema in the schema registry of the Cluster."""

    subject: Annotated[
        Subject | None, doc("Subject of the schema. Defaults to the topic's name with -value, or -key for a keyFormat.")
    ] = None
    version: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        doc("Version of the schema. Defaults to the latest when the pipeline starts."),
    ] = None
    id: Annotated[Annotated[int, Meta(ge=1)] | None, doc("Id of the schema, instead of subject and version.")] = None

    rules = (
        Rule(
            "!has(self.id) || (!has(self.subject) && !has(self.version))",
            "an id names one schema; it has neither subject nor version beside it",
            lambda value: "id" not in value or not {"subject", "version"} & value.keys(),
            "id",
        ),
    )


class Format(Model, frozen=True):
    """Decoding of record values, or keys, into columns."""

    type: Annotated[
        Literal["json", "avro", "protobuf", "raw"],
        doc(
            "json, avro and protobuf: the columns of the schema. avro, protobuf, and json with schemaRef: records in "
            "the framing of the schema registry, each read with the schema that it was written with. raw: the columns "
            "key and value, as bytes."
        ),
    ]
    schema: Annotated[
        Annotated[str, Meta(max_length=65_536)] | None,
        doc(
            "For json: a Spark DDL schema, such as 'carrier STRING, delay DOUBLE'. For avro: the reader's schema as "
            "JSON text. For protobuf: the reader's schema as protoc --include_imports --descriptor_set_out writes it, "
            "in base64. Records that do not match are dead letters."
        ),
    ] = None
    schema_ref: Annotated[
        SchemaRef | None, doc("Instead of schema: the reader's schema in the schema registry. For json: a JSON Schema.")
    ] = None
    message: Annotated[
        MessageName | None,
        doc(
            "Message of the schema that records are encoded as. Only for protobuf. Defaults to the first of the schema."
        ),
    ] = None

    rules = (
        at_most_one("schema", "schemaRef", message="a format has at most one of schema and schemaRef"),
        Rule(
            "(self.type == 'raw') != (has(self.schema) || has(self.schemaRef))",
            "json, avro and protobuf need schema or schemaRef; raw has none",
            lambda value: (value.get("type") == "raw") != ("schema" in value or "schemaRef" in value),
            "schema",
        ),
        Rule(
            "!has(self.message) || self.type == 'protobuf'",
            "message is only for protobuf",
            lambda value: "message" not in value or value.get("type") == "protobuf",
            "message",
        ),
    )

    @property
    def is_framed(self) -> bool:
        """True if records are in the schema registry's framing."""
        return self.type in FRAMED or self.schema_ref is not None


class SinkFormat(Model, frozen=True):
    """Encoding of rows as record values, or keys."""

    type: Annotated[
        Literal["json", "avro", "protobuf"],
        doc(
            "json: an object; with subject or register, in the framing of the schema registry, with a JSON Schema. "
            "avro and protobuf: in the framing of the schema registry."
        ),
    ]
    subject: Annotated[
        Subject | None,
        doc("Subject of the rows' schema. Defaults to the topic's name with -value, or -key for a keyFormat."),
    ] = None
    register: Annotated[
        bool | None,
        doc(
            "true: the schema of the rows' columns is registered when the pipeline starts. false: rows are encoded "
            "with the latest schema of the subject, which has to have their columns. Defaults to true for avro and "
            "protobuf; for json, to true with a subject, and to no schema without one."
        ),
    ] = None
    message: Annotated[
        MessageName | None,
        doc(
            "Message of the subject's schema as which rows are encoded. Only for protobuf with register: false. "
            "Defaults to the first of the schema."
        ),
    ] = None

    rules = (
        Rule(
            "!has(self.message) || (self.type == 'protobuf' && has(self.register) && !self.register)",
            "message is only for protobuf with register: false; a registered schema has one message",
            lambda value: "message" not in value or (value.get("type"), value.get("register")) == ("protobuf", False),
            "message",
        ),
    )

    @property
    def is_framed(self) -> bool:
        """True if records are in the schema registry's framing."""
        return self.type in FRAMED or self.subject is not None or self.register is not None

    @property
    def registers(self) -> bool:
        """True if the schema of the columns is registered."""
        return self.is_framed and self.register is not False
