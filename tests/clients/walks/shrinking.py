"""A walk that found a difference, made small: steps are left out while the same difference stays."""

from collections.abc import Awaitable, Callable

from tests.clients.walks.steps import Step
from tests.clients.walks.walking import Difference

Replay = Callable[[list[Step]], Awaitable[Difference | None]]


async def shrunk(steps: list[Step], found: Difference, replay: Replay) -> tuple[list[Step], Difference]:
    """The steps up to the difference, as few as leaving out runs of them (halves first, single ones last) can make them."""
    kept = steps[: found.at + 1]
    size = max(len(kept) // 2, 1)
    while True:
        at, cut = 0, False
        while at < len(kept) - 1:
            fewer = kept[:at] + kept[min(at + size, len(kept) - 1) :]
            again = await replay(fewer)
            if again is not None and again.by_chance:
                again = await replay(fewer)
            if again is not None and again.step.api == found.step.api and not again.by_chance:
                kept, found, cut = fewer[: again.at + 1], again, True
            else:
                at += size
        if size == 1 and not cut:
            return kept, found
        size = max(size // 2, 1)
