"""Minimizes a walk with a difference: removes steps as long as a difference of the same API
remains.
"""

from collections.abc import Awaitable, Callable

from tests.clients.walks.steps import Step
from tests.clients.walks.walk import Difference

Replay = Callable[[list[Step]], Awaitable[Difference | None]]


async def minimize_steps(steps: list[Step], found: Difference, replay: Replay) -> tuple[list[Step], Difference]:
    """Returns the shortest sequence found whose last step differs and has the same API, and its
    difference. Removes runs of steps, halves first and single steps last.
    """
    kept = steps[: found.at + 1]
    size = max(len(kept) // 2, 1)
    while True:
        at, cut = 0, False
        while at < len(kept) - 1:
            fewer = kept[:at] + kept[min(at + size, len(kept) - 1) :]
            again = await replay(fewer)
            if again is not None and again.is_nondeterministic:
                again = await replay(fewer)
            if again is not None and again.step.api == found.step.api and not again.is_nondeterministic:
                kept, found, cut = fewer[: again.at + 1], again, True
            else:
                at += size
        if size == 1 and not cut:
            return kept, found
        size = max(size // 2, 1)
