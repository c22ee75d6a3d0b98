"""Concurrent requests, bounded in number."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

MAX_CONCURRENT: Final = 16

T = TypeVar("T")
R = TypeVar("R")


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[R]]) -> list[R]:
    """Calls `do` for each item, at most MAX_CONCURRENT at a time. Returns the results in the order
    of the items. The first exception cancels the other calls and is raised."""
    limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def do_when_allowed(item: T) -> R:
        async with limit:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(do_when_allowed(it)) for it in items]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [it.result() for it in tasks]
