"""Compares the table of PostgreSQL with the Iceberg table, row by row, and prints both by status.

    pip install 'pyiceberg[pyarrow,sql-sqlite]'
    python -m examples.cdc.compare [FOLDER]

FOLDER has the Iceberg catalog; by default it is the folder of this file.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from examples.cdc.database import Database

_QUERY: Final = """
SELECT coalesce(json_agg(row_to_json(found)), '[]')
FROM (SELECT id, customer, status, amount::text, note, changed FROM orders) AS found;
"""


class Order(msgspec.Struct, frozen=True):
    """A row of both tables. The Iceberg table also has the position of its change in the database's
    log. Columns that PostgreSQL never has as NULL are nullable in Iceberg.
    """

    id: int
    customer: str | None
    status: str | None
    amount: Decimal | None
    note: str | None
    changed: datetime | None


def orders_of_database(database: Database) -> Counter[Order]:
    """The rows of PostgreSQL."""
    return Counter(msgspec.json.decode(database.run([_QUERY]), type=list[Order]))


def orders_of_lake(folder: Path) -> Counter[Order]:
    """The rows of the Iceberg table. Raises RuntimeError if the pipeline has not created it."""
    if not (folder / "lake.db").exists():
        raise RuntimeError(f"{folder} has no lake.db: the pipeline has not written a batch")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=str(folder / "lake"))
    try:
        rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    except NoSuchTableError as error:
        raise RuntimeError(f"{error}: the pipeline has not written a batch") from error
    return Counter(msgspec.convert(rows, list[Order]))


def report(database: Collection[Order], lake: Collection[Order]) -> Iterator[str]:
    """A table with the number of orders and the sum of their amounts, by status and side."""
    yield f"{'':10}{'PostgreSQL':>24}{'Iceberg':>24}"
    sides = [_by_status(database), _by_status(lake)]
    for status in sorted({*sides[0], *sides[1]}):
        cells = [f"{len(side[status]):>10,}{sum(side[status]):>14,.2f}" for side in sides]
        yield f"{status:10}{''.join(cells)}"


def _by_status(orders: Collection[Order]) -> defaultdict[str, list[Decimal]]:
    found = defaultdict(list)
    for order in orders:
        found[order.status or ""].append(order.amount or Decimal())
    return found


def main(folder: str = str(Path(__file__).parent)) -> None:
    """Prints the report. Exits with 1 if a row differs."""
    database, lake = orders_of_database(Database()), orders_of_lake(Path(folder).absolute())
    print(*report(list(database.elements()), list(lake.elements())), sep="\n")
    differing = {it.id for it in (database - lake) | (lake - database)}
    if differing:
        more = " …" if len(differing) > 10 else ""
        raise SystemExit(f"{len(differing):,} orders differ: {', '.join(map(str, sorted(differing)[:10]))}{more}")
    print(f"{database.total():,} rows are equal")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RuntimeError as failure:
        raise SystemExit(str(failure)) from None
