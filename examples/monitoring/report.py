"""Prints what the Iceberg tables say about the last minutes.

    pip install 'pyiceberg[pyarrow,sql-sqlite]' duckdb
    python examples/monitoring/report.py [FOLDER]

FOLDER has the Iceberg catalog; by default it is the folder of this file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from duckdb import DuckDBPyConnection
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

# A counter begins at 0 again when its broker restarts. The negative difference then counts as 0.
REPORT: Final = """
WITH growth AS (
    SELECT "at", name, greatest(value - lag(value) OVER (PARTITION BY broker, name, labels ORDER BY "at"), 0) AS n
    FROM metrics
    WHERE name IN ('kafka_server_brokertopicmetrics_messagesin_total', 'kafka_network_requestmetrics_requests_total')
), counts AS (
    SELECT date_trunc('minute', "at") AS minute,
           sum(n) FILTER (name = 'kafka_server_brokertopicmetrics_messagesin_total') AS records,
           sum(n) FILTER (name = 'kafka_network_requestmetrics_requests_total') AS requests
    FROM growth GROUP BY minute
), states AS (
    SELECT date_trunc('minute', "at") AS minute, max(value)::INT AS under_replicated
    FROM metrics WHERE name = 'kafka_server_replicamanager_underreplicatedpartitions' GROUP BY minute
), lines AS (
    SELECT date_trunc('minute', "at") AS minute, count(*) AS log_lines,
           count(*) FILTER (level IN ('WARNING', 'ERROR', 'CRITICAL')) AS warnings
    FROM logs GROUP BY minute
)
SELECT strftime(minute, '%H:%M') AS minute, coalesce(records, 0)::BIGINT AS records,
       coalesce(requests, 0)::BIGINT AS requests, under_replicated,
       coalesce(log_lines, 0) AS log_lines, coalesce(warnings, 0) AS warnings
FROM counts JOIN states USING (minute) LEFT JOIN lines USING (minute)
ORDER BY counts.minute DESC LIMIT 15
"""


def open_tables(folder: Path) -> DuckDBPyConnection:
    """A DuckDB with the tables `metrics` and `logs`. Raises RuntimeError if the pipeline has not
    created them.
    """
    if not (folder / "lake.db").exists():
        raise RuntimeError(f"{folder} has no lake.db: the pipeline has not written a batch")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=str(folder / "lake"))
    try:
        database = catalog.load_table("site.metrics").scan().to_duckdb("metrics")
        return catalog.load_table("site.logs").scan().to_duckdb("logs", database)
    except NoSuchTableError as error:
        raise RuntimeError(f"{error}: the pipeline has not written a batch") from error


def main(folder: str = str(Path(__file__).parent)) -> None:
    """Prints the report, the last minute first."""
    print(open_tables(Path(folder).absolute()).sql(REPORT))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RuntimeError as failure:
        raise SystemExit(str(failure)) from None
