"""Many requests at once, but not too many."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

MAX_CONCURRENT: Final = 16

T = TypeVar("T")
R = TypeVar("R")


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results in order; at most MAX_CONCURRENT run at a time. The first exception cancels the
    rest and is raised."""
    limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def one(item: T) -> R:
        async with limit:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(it)) for it in items]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [it.result() for it in tasks]
