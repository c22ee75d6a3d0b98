"""Draws the Iceberg table `shop.orders` as SVG: the amount of each customer's orders, by status.

    pip install 'pyiceberg[pyarrow,sql-sqlite]'
    python -m examples.cdc.plot [FOLDER] > cdc.svg

FOLDER has the Iceberg catalog; by default it is the folder of this file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Final

from examples.bar_chart import BLUE, GREY, ORANGE, Series, draw_bars
from examples.cdc.compare import Order, orders_of_lake

STATUSES: Final = {"placed": GREY, "paid": ORANGE, "shipped": BLUE}


def draw(orders: Iterable[Order]) -> str:
    """The SVG document."""
    amounts: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for order in orders:
        amounts[order.customer or "", order.status or ""] += order.amount or Decimal()
    customers = sorted({customer for customer, _ in amounts})
    series = [
        Series(f"{status} orders, amount", color, [float(amounts[customer, status]) for customer in customers])
        for status, color in STATUSES.items()
    ]
    return draw_bars(series, dict(enumerate(customers)), beside=True)


def main(folder: str = str(Path(__file__).parent)) -> None:
    """Prints the SVG document."""
    try:
        orders = orders_of_lake(Path(folder).absolute())
    except RuntimeError as failure:
        raise SystemExit(str(failure)) from None
    sys.stdout.write(draw(orders.elements()))


if __name__ == "__main__":
    main(*sys.argv[1:])
