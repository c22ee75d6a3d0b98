"""Raw rows to typed rows, and a reason for each that cannot be.

- json: the schema is Spark's DDL. Fields that the schema does not name are passed over, fields that are missing are
  null; a value of another type, or text that is not one JSON object, does not decode. A column that the schema calls
  NOT NULL must be there.
- raw: the columns `key` and `value`, as bytes. Everything decodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_spark.spec import OFFSET_COLUMNS, Source
from ottla_spark.trouble import Trouble, in_words, marked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

FAULT = "_fault"
"""Why a row does not decode, as a sentence; null when it does."""
_CORRUPT = "_corrupt"


def decoded(raw: DataFrame, source: Source, name: str) -> DataFrame:
    """The source's columns beside the raw ones, and `_fault`. Trouble when the schema is none."""
    from pyspark.sql import functions as F

    if source.format.type == "raw":
        rows = raw.select("*", F.col("_key").alias("key"), F.col("_value").alias("value"))
        return rows.withColumn(FAULT, F.lit(None).cast("string"))
    schema = columns(source, name)
    nullable = schema.__class__([field.__class__(field.name, field.dataType, True) for field in schema])
    parsed = F.from_json(
        F.col("_value").cast("string"),
        nullable.add(_CORRUPT, "string"),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    # As a generator and not a plain column, so that the optimizer parses each value once: it would push the parsing
    # into the
    # filter on `_fault` too, and prune the schema down to the columns that are used, with which wrong ones pass
    # unnoticed.
    rows = raw.select("*", F.inline(F.array(parsed)))
    if source.key is not None:
        rows = rows.withColumn(source.key, F.col("_key").cast("string"))
    return rows.withColumn(FAULT, _fault(schema)).drop(_CORRUPT)


def columns(source: Source, name: str) -> StructType:
    """The columns that a JSON schema in Spark's DDL names. Trouble when it is none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(source.format.schema or "")
    except PySparkException as error:
        raise Trouble(f"spec.sources.{name}.format.schema: {in_words(error)}") from error
    if not isinstance(schema, StructType):
        raise Trouble(f"spec.sources.{name}.format.schema: {source.format.schema} is one type, and not columns")
    return schema


def _fault(schema: StructType) -> Column:
    from pyspark.sql import functions as F

    found = (
        F.when(F.col("_value").isNull(), "the record has no value")
        .when(F.col(_CORRUPT).isNotNull(), "the value is not JSON that fits the schema")
        .when(F.length(F.trim(F.col("_value").cast("string"))) == 0, "the value is empty")
    )
    for field in schema:
        if not field.nullable:
            found = found.when(F.col(f"`{field.name}`").isNull(), f"the column {field.name} is missing or null")
    return found


def good(rows: DataFrame) -> DataFrame:
    """The rows that decode, with the source's columns and where they came from."""
    return rows.where(f"{FAULT} IS NULL").drop(FAULT, "_key", "_value")


def all_or_fail(rows: DataFrame) -> DataFrame:
    """The same; a row that does not decode fails the batch with a sentence that names the record."""
    from pyspark.sql import functions as F

    topic, partition, offset, _ = (F.col(name) for name in OFFSET_COLUMNS)
    before, after = marked("\0").split("\0")
    sentence = F.concat(
        F.lit(before + "topic "), topic, F.lit(", partition "), partition.cast("string"),
        F.lit(", offset "), offset.cast("string"), F.lit(": "), F.col(FAULT),
        F.lit("; with a deadLetter topic such records are set aside" + after),
    )  # fmt: skip
    passes = F.when(F.col(FAULT).isNull(), F.lit(True)).otherwise(F.raise_error(sentence).cast("boolean"))
    return rows.where(passes).drop(FAULT, "_key", "_value")
