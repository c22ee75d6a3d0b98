"""Waits for an event, but not longer than a timeout."""

import asyncio


async def wait_for_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Returns when the event is set, or at the timeout. None: no timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
