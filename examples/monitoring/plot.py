"""Draws the table `site.metrics` as SVG: records and requests of all brokers in each minute.

    pip install 'pyiceberg[pyarrow,sql-sqlite]' duckdb
    python -m examples.monitoring.plot [FOLDER] > monitoring.svg

FOLDER has the Iceberg catalog; by default it is the folder of this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from duckdb import DuckDBPyConnection

from examples.bar_chart import BLUE, GREY, Series, draw_bars
from examples.monitoring.report import REPORT, open_tables


def draw(tables: DuckDBPyConnection) -> str:
    """The SVG document of the last minutes, the oldest first."""
    minutes = list(reversed(tables.sql(f"SELECT minute, records, requests FROM ({REPORT})").fetchall()))
    series = (
        Series("records in a minute", GREY, [records for _, records, _ in minutes]),
        Series("requests in a minute", BLUE, [requests for _, _, requests in minutes]),
    )
    return draw_bars(series, {index: minute for index, (minute, _, _) in enumerate(minutes)}, beside=True)


def main(folder: str = str(Path(__file__).parent)) -> None:
    """Prints the SVG document."""
    sys.stdout.write(draw(open_tables(Path(folder).absolute())))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RuntimeError as failure:
        raise SystemExit(str(failure)) from None
