"""Spark's configuration of the catalogs of Iceberg sinks
(https://iceberg.apache.org/docs/1.11.0/spark-configuration/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla_operator.resources.sinks import Sink
from ottla_operator.resources.table_sinks import IcebergCatalog
from ottla_spark.errors import PipelineError
from ottla_spark.secret_files import read_secret

_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_SQLITE: Final = "jdbc:sqlite:"
NO_PROPERTIES: Final[Mapping[str, str]] = {}


def iceberg_conf(
    sinks: Iterable[Sink], folder: Path, secrets: Path | None, rest_properties: Mapping[str, str] = NO_PROPERTIES
) -> dict[str, str]:
    """Properties of all catalogs that sinks declare. `folder`: base of relative paths.
    `rest_properties`: defaults of REST catalogs. Raises PipelineError if two sinks declare one
    catalog differently, or a Secret cannot be read.
    """
    found: dict[str, IcebergCatalog] = {}
    for sink in sinks:
        if sink.iceberg is None or sink.iceberg.catalog is None:
            continue
        name = catalog_name(sink.iceberg.table)
        if found.setdefault(name, sink.iceberg.catalog) != sink.iceberg.catalog:
            raise PipelineError(
                f"sink {sink.query_name}: another sink declares the catalog {name} with other properties; "
                "use the same, or another name in table"
            )
    conf: dict[str, str] = {}
    for name, catalog in found.items():
        defaults = rest_properties if catalog.type == "rest" else NO_PROPERTIES
        conf |= catalog_conf(name, catalog, folder, secrets, defaults)
    return conf


def catalog_name(table: str) -> str:
    """The first part of catalog.database.table."""
    return table.partition(".")[0]


def catalog_conf(
    name: str,
    catalog: IcebergCatalog,
    folder: Path,
    secrets: Path | None,
    defaults: Mapping[str, str] = NO_PROPERTIES,
) -> dict[str, str]:
    """Spark's properties of one catalog. `defaults`: the catalog's own properties override them.
    Raises PipelineError if the Secret cannot be read.
    """
    properties = {"type": catalog.type, **defaults, **catalog.properties}
    if catalog.warehouse is not None:
        is_url = "://" in catalog.warehouse or catalog.type == "rest"
        properties["warehouse"] = catalog.warehouse if is_url else str(folder / catalog.warehouse)
    if catalog.uri is not None:
        properties["uri"] = _resolve_sqlite(catalog.uri, folder)
    if catalog.type == "jdbc":
        properties.setdefault("jdbc.schema-version", "V1")
    if catalog.secret_ref is not None:
        properties |= _credentials(catalog, secrets)
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: _CATALOG, **{f"{prefix}.{key}": value for key, value in properties.items()}}


def _resolve_sqlite(uri: str, folder: Path) -> str:
    return _SQLITE + str(folder / uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else uri


def _credentials(catalog: IcebergCatalog, secrets: Path | None) -> dict[str, str]:
    assert catalog.secret_ref is not None
    keys = ("credential",) if catalog.type == "rest" else ("user", "password")
    prefix = "" if catalog.type == "rest" else "jdbc."
    return {prefix + key: value for key, value in read_secret(secrets, catalog.secret_ref.name, keys).items()}
