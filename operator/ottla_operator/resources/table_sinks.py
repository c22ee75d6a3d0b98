"""Sinks of a Pipeline that are tables: Iceberg, Delta, and tables of a database."""

import re
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, field

from ottla_operator.resources.common import Column, Duration, ObjectRef
from ottla_operator.resources.model import Model, Rule, doc

CATALOG_URI: Final = r"^(jdbc:(sqlite|postgresql):|https?://)"
ICEBERG_TABLE: Final = r"^[^.`]+(\.[^.`]+){2,}$"
JDBC_URL: Final = r"^jdbc:postgresql:"
JDBC_TABLE: Final = r"^[^.]{1,63}(\.[^.]{1,63})?$"
PARTITION_FIELD: Final = (
    r"^([a-zA-Z_]\w*|(years|months|days|hours)\([a-zA-Z_]\w*\)|bucket\([1-9][0-9]*, ?[a-zA-Z_]\w*\))$"
)


class Maintenance(Model, frozen=True):
    """Compaction of small files, and deletion of old versions of the table."""

    interval: Annotated[
        Duration,
        doc("Time between runs. A run is at the beginning of a batch, which then takes longer. Defaults to 1h."),
    ] = "1h"
    retain: Annotated[
        Duration,
        doc(
            "How long old versions can be read. Older ones are deleted, with the files that only they need. "
            "Defaults to 7 days."
        ),
    ] = "7 days"


class IcebergCatalog(Model, frozen=True):
    """Iceberg catalog."""

    type: Annotated[
        Literal["hadoop", "jdbc", "rest"],
        doc(
            "hadoop: the folder of the tables is the catalog. jdbc: tables of a database. rest: a server of Iceberg's "
            "REST API."
        ),
    ]
    warehouse: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        doc(
            "Folder of the tables: a path, relative to the YAML file with `ottla up`, or a URL such as s3a://bucket/lake."
        ),
    ] = None
    uri: Annotated[
        Annotated[str, Meta(max_length=1024, pattern=CATALOG_URI)] | None,
        doc(
            "jdbc: JDBC URL of a PostgreSQL or SQLite database, such as jdbc:sqlite:lake.db, without credentials. "
            "rest: URL of the server."
        ),
    ] = None
    secret_ref: Annotated[
        ObjectRef | None,
        doc("Secret with user and password of the database, or with the credential (ID:SECRET) at the REST server."),
    ] = None
    properties: Annotated[
        dict[str, str], doc("Further properties of the catalog, without the prefix spark.sql.catalog.")
    ] = field(default_factory=dict)

    rules = (
        Rule(
            "self.type == 'rest' || has(self.warehouse)",
            "catalogs of the types hadoop and jdbc need a warehouse",
            lambda value: value["type"] == "rest" or "warehouse" in value,
            "warehouse",
        ),
        Rule(
            "self.type == 'hadoop' ? !has(self.uri) : has(self.uri) && "
            "self.uri.startsWith(self.type == 'rest' ? 'http' : 'jdbc:')",
            "a catalog of type jdbc has the uri of a database, one of type rest that of a server, and hadoop has none",
            lambda value: (
                "uri" not in value
                if value["type"] == "hadoop"
                else value.get("uri", "").startswith("http" if value["type"] == "rest" else "jdbc:")
            ),
            "uri",
        ),
    )


IcebergTable: TypeAlias = Annotated[
    str,
    Meta(
        max_length=255,
        pattern=ICEBERG_TABLE,
        description="catalog.database.table. Database and table are created if they do not exist.",
    ),
]
CatalogOfTable: TypeAlias = Annotated[
    IcebergCatalog | None, doc("Catalog of the table. Defaults to the catalog that spark.conf configures.")
]


class Iceberg(Model, frozen=True):
    """Iceberg table."""

    table: IcebergTable
    catalog: CatalogOfTable = None
    partition_by: Annotated[
        Annotated[tuple[Annotated[str, Meta(max_length=255, pattern=PARTITION_FIELD)], ...], Meta(max_length=16)],
        doc(
            "Partitions of a new table: columns, or years, months, days, hours of one, such as "
            "days(scheduled), or bucket(16, id)."
        ),
    ] = ()
    maintenance: Annotated[Maintenance | None, doc("Compaction, and expiry of snapshots. Defaults to none.")] = None


class Delta(Model, frozen=True):
    """Delta table."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            description="Folder, relative to the YAML file with `ottla up`, or URL. Created if it does not exist.",
        ),
    ]
    partition_by: Annotated[
        Annotated[tuple[Column, ...], Meta(max_length=16)],
        doc("Columns by which a new table is partitioned."),
    ] = ()
    maintenance: Annotated[Maintenance | None, doc("Compaction, and deletion of unused files. Defaults to none.")] = (
        None
    )


class Jdbc(Model, frozen=True):
    """Table of a PostgreSQL database."""

    url: Annotated[
        str,
        Meta(
            max_length=1024,
            pattern=JDBC_URL,
            description="JDBC URL, such as jdbc:postgresql://db.example.com:5432/flights, without credentials.",
        ),
    ]
    table: Annotated[
        str,
        Meta(
            max_length=127,
            pattern=JDBC_TABLE,
            description=(
                "table or schema.table, case-sensitive. Created if it does not exist, with key as its primary key."
            ),
        ),
    ]
    secret_ref: Annotated[ObjectRef | None, doc("Secret with user and password.")] = None

    rules = (
        Rule(
            "!self.url.matches('[?&;](user|password)=') && !self.url.matches('//[^/]*@')",
            "the URL has credentials; put user and password into a Secret and name it in secretRef",
            lambda value: re.search(r"[?&;](user|password)=|//[^/]*@", value["url"]) is None,
            "url",
        ),
    )
