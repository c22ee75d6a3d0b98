"""Changes rows of the table `orders` in PostgreSQL.

    python -m examples.cdc.orders [TRANSACTIONS]

Each transaction has one to four statements: a new order, a status for an order, a note, a cancelled
order that is deleted, or an order that gets another number, which is its primary key. Each tenth
transaction is rolled back. The first run always makes the same changes; a further run continues
after the largest order number.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from examples.cdc.database import Database

TRANSACTIONS: Final = 2_000
PAUSE_S: Final = 0.005
CUSTOMERS: Final = ("Zürich", "O'Hara & Sons", "Ångström", "東京", "Bakery")
STATUSES: Final = ("placed", "paid", "shipped")


class OrderChanges:
    """Generates SQL statements. `first`: number of the first order."""

    def __init__(self, first: int = 1, seed: int = 1) -> None:
        self._generator = random.Random(seed)
        self._next = first
        self._orders: list[int] = []

    def transactions(self, count: int) -> Iterator[str]:
        """`count` transactions, each as a line of SQL."""
        for number in range(1, count + 1):
            before, is_rolled_back = list(self._orders), number % 10 == 0
            statements = [self._statement() for _ in range(self._generator.randint(1, 4))]
            yield " ".join(["BEGIN;", *statements, "ROLLBACK;" if is_rolled_back else "COMMIT;"])
            if is_rolled_back:
                self._orders = before

    def _statement(self) -> str:
        choice = self._generator.random()
        if not self._orders or choice < 0.35:
            return self._insert()
        order = self._generator.choice(self._orders)
        if choice < 0.70:
            return self._update(order, f"status = '{self._generator.choice(STATUSES)}'")
        if choice < 0.80:
            note = "NULL" if choice < 0.73 else f"repeat('Leave it at the door. ', {self._generator.randint(0, 400)})"
            return self._update(order, f"note = {note}")
        self._orders.remove(order)
        if choice < 0.92:
            return f"DELETE FROM orders WHERE id = {order};"
        return self._update(order, f"id = {self._add_order()}")

    def _insert(self) -> str:
        customer = self._generator.choice(CUSTOMERS).replace("'", "''")
        amount = self._generator.randint(100, 50_000) / 100
        values = f"{self._add_order()}, '{customer}', 'placed', {amount:.2f}, NULL, clock_timestamp()"
        return f"INSERT INTO orders VALUES ({values});"

    def _update(self, order: int, change: str) -> str:
        return f"UPDATE orders SET {change}, changed = clock_timestamp() WHERE id = {order};"

    def _add_order(self) -> int:
        """The number of another order, which later statements may change."""
        number = self._next
        self._next += 1
        self._orders.append(number)
        return number


def add_pauses(transactions: Iterable[str]) -> Iterator[str]:
    """The transactions, with a pause of PAUSE_S after each."""
    return (f"{each} DO 'BEGIN PERFORM pg_sleep({PAUSE_S}); END';" for each in transactions)


def main(database: Database, count: int = TRANSACTIONS) -> None:
    """Runs the transactions."""
    first = int(database.run(["SELECT coalesce(max(id), 0) + 1 FROM orders;"]))
    database.run(add_pauses(OrderChanges(first, seed=first).transactions(count)))


if __name__ == "__main__":
    try:
        main(Database(), *map(int, sys.argv[1:]))
    except RuntimeError as failure:
        raise SystemExit(str(failure)) from None
