"""Sources of a Pipeline: topics that it reads, as streams or tables."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ottla_operator.resources.common import STARTING_OFFSETS, Column, Duration, TopicName, is_time, parse_time
from ottla_operator.resources.formats import Format
from ottla_operator.resources.model import Model, Rule, doc

NAMED_OFFSETS: Final = ("earliest", "latest")


class Watermark(Model, frozen=True):
    """Event time, and how late records may be."""

    column: Annotated[Column, doc("TIMESTAMP column that holds the event time.")]
    delay: Annotated[
        Duration,
        doc(
            "How much older than the newest event a record may be, such as '2 hours'. "
            "Older records are excluded from windows."
        ),
    ]


class Source(Model, frozen=True):
    """Topic that the pipeline reads."""

    topic: Annotated[TopicName, doc("Name of the topic on the brokers.")]
    format: Annotated[Format, doc("Decoding of record values into columns.")]
    key: Annotated[Column | None, doc("Column that receives the record key: as text, or as keyFormat decodes it.")] = (
        None
    )
    key_format: Annotated[
        Format | None,
        doc(
            "Decoding of record keys into the column that key names. The column is a struct of the schema's columns; "
            "it has the schema's type if the schema has no columns, and is bytes with raw. Defaults to text."
        ),
    ] = None
    watermark: Annotated[Watermark | None, doc("Event time and allowed lateness. Required by windows.")] = None
    starting_offsets: Annotated[
        Annotated[str, Meta(max_length=64, pattern=STARTING_OFFSETS)],
        doc(
            "Where the first run starts: earliest, latest, or a time such as 2026-11-23T08:00:00Z: at the first "
            "record of that time or later in each partition, or at the end of a partition that has none. Later runs "
            "resume from the checkpoint. Defaults to earliest."
        ),
    ] = "earliest"
    max_offsets_per_trigger: Annotated[
        Annotated[int, Meta(ge=1)] | None, doc("Maximum number of records in a batch. Defaults to no limit.")
    ] = None
    on_data_loss: Annotated[
        Literal["fail", "continue"],
        doc("Reaction when records were deleted before they were read. Defaults to fail."),
    ] = "fail"
    mode: Annotated[
        Literal["stream", "table"],
        doc(
            "stream: every record is a row. table: the latest record of each key of a compacted topic is a row; "
            "tables are joined with streams. Defaults to stream."
        ),
    ] = "stream"
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        doc("Whether records of open and aborted transactions are skipped. Defaults to read_committed."),
    ] = "read_committed"

    rules = (
        Rule(
            "!has(self.watermark) || !has(self.mode) || self.mode == 'stream'",
            "a watermark is only for streams; a table has no late records",
            lambda value: "watermark" not in value or value.get("mode", "stream") == "stream",
            "watermark",
        ),
        Rule(
            "!has(self.keyFormat) || has(self.key)",
            "keyFormat needs key: the column that receives the key",
            lambda value: "keyFormat" not in value or "key" in value,
            "keyFormat",
        ),
        Rule(
            None,
            "startingOffsets is earliest, latest or a time that exists",
            lambda value: (text := value.get("startingOffsets", "earliest")) in NAMED_OFFSETS or is_time(text),
            "startingOffsets",
            lambda value: repr(value["startingOffsets"]),
        ),
    )

    @property
    def starts_at_latest(self) -> bool:
        return self.starting_offsets == "latest"

    @property
    def starting_time_ms(self) -> int | None:
        """The time that the first run starts at, since the epoch. None: earliest or latest."""
        if self.starting_offsets in NAMED_OFFSETS:
            return None
        return int(parse_time(self.starting_offsets).timestamp() * 1000)
