"""Long lists, shown a page at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

PAGE_SIZE: Final = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list. `found`: number of items on all pages. `number`: this page's number, from
    1. `last`: that of the last page.
    """

    rows: Sequence[T]
    found: int
    number: int
    last: int


def cut_page(items: Sequence[T], number: int) -> ListPage[T]:
    """The page with that number, from 1; the last one if there are fewer pages."""
    last = max(1, -(-len(items) // PAGE_SIZE))
    number = min(max(1, number), last)
    return ListPage(items[(number - 1) * PAGE_SIZE : number * PAGE_SIZE], len(items), number, last)
