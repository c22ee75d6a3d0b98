"""`lake` of a Topic: a table of a lake that its records are appended to."""

from typing import Annotated

from ottla_operator.resources.common import Column, Duration
from ottla_operator.resources.formats import Format
from ottla_operator.resources.model import Model, Rule, doc
from ottla_operator.resources.object_store import ObjectStore
from ottla_operator.resources.pipeline import Checkpoint, Spark
from ottla_operator.resources.table_sinks import CatalogOfTable, IcebergTable, Maintenance


class LakeIceberg(Model, frozen=True):
    """Iceberg table, partitioned by the day of the records' timestamps."""

    table: IcebergTable
    catalog: CatalogOfTable = None
    maintenance: Annotated[
        Maintenance, doc("Compaction, and expiry of snapshots. Defaults to every hour, with snapshots of 7 days.")
    ] = Maintenance()


class Lake(Model, frozen=True):
    """Table that the topic's records are appended to, by a Pipeline that the operator creates."""

    iceberg: Annotated[LakeIceberg, doc("Iceberg table.")]
    format: Annotated[
        Format, doc("Decoding of record values into columns. Defaults to raw: the columns key and value, as bytes.")
    ] = Format(type="raw")
    key: Annotated[Column | None, doc("Column that receives the record key as text. Not for raw.")] = None
    interval: Annotated[
        Duration, doc("Time between batches, each of which is a snapshot of the table. Defaults to 1m.")
    ] = "1m"
    checkpoint: Annotated[
        Checkpoint | None, doc("Checkpoint of the Pipeline. Defaults to a PersistentVolumeClaim of 1Gi.")
    ] = None
    s3: Annotated[ObjectStore | None, doc("S3-compatible store of the table. Defaults to AWS.")] = None
    spark: Annotated[Spark | None, doc("Spark's resources and configuration.")] = None

    rules = (
        Rule(
            "!has(self.key) || (has(self.format) && self.format.type != 'raw')",
            "raw records have their key in the column key",
            lambda value: "key" not in value or value.get("format", {}).get("type", "raw") != "raw",
            "key",
        ),
    )
