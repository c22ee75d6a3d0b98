"""Walk after walk through one pair of brokers, each under names of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.clients.walks.pair import highest_versions, sides_of
from tests.clients.walks.shrinking import shrunk
from tests.clients.walks.side import Side
from tests.clients.walks.steps import Step
from tests.clients.walks.themes import drawn
from tests.clients.walks.walking import Difference, Walk


class Verdict(Enum):
    CLEAN = "clean"
    CHANCE = "ended where Kafka itself may answer either"
    ONCE = "differed once, and not when they were walked again"
    DIFFERS = "differ"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`steps`: those that lead to the difference, if there is one."""

    seed: int
    verdict: Verdict
    found: Difference | None = None
    steps: Sequence[Step] = ()

    def __str__(self) -> str:
        before = [f"  {at}: {step}" for at, step in enumerate(self.steps[: self.found.at if self.found else 0])]
        return "\n".join((f"seed {self.seed}: {self.verdict.value}", *before, str(self.found)))


class Runs:
    """Made by `begun`. `walked`: steps put to both brokers so far."""

    def __init__(self, sides: Sequence[Side], highest: dict[str, int]) -> None:
        self.walked = 0
        self._sides = sides
        self._highest = highest
        self._walks = 0

    async def walk(self, seed: int, count: int, theme: str | None = None) -> Outcome:
        """A difference is walked again: what depends on who is quicker does not come twice."""
        steps = drawn(seed, count, self._highest, theme)
        found = await self._go(steps)
        if found is None:
            return Outcome(seed, Verdict.CLEAN)
        if found.by_chance:
            return Outcome(seed, Verdict.CHANCE)
        again = await self._go(steps)
        if again is not None and again.by_chance:
            again = await self._go(steps)
        if again is None or again.by_chance:
            return Outcome(seed, Verdict.ONCE, found)
        return Outcome(seed, Verdict.DIFFERS, again, steps)

    async def smaller(self, outcome: Outcome) -> Outcome:
        """The same difference with as few steps as it takes."""
        if outcome.verdict is not Verdict.DIFFERS or outcome.found is None:
            return outcome
        steps, found = await shrunk(list(outcome.steps), outcome.found, self._go)
        return Outcome(outcome.seed, outcome.verdict, found, steps)

    async def _go(self, steps: Sequence[Step]) -> Difference | None:
        walk = Walk(self._sides, f"w{self._walks}.")
        self._walks += 1
        found = await walk.go(steps)
        self.walked += walk.walked
        return found

    def close(self) -> None:
        for side in self._sides:
            side.close()


async def begun(kafka: str, ottla: str) -> Runs:
    """`kafka`, `ottla`: their addresses."""
    sides = await sides_of(kafka, ottla)
    return Runs(sides, await highest_versions(sides))
