"""Runs walks on one pair of brokers. Each walk has its own names of topics and groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.clients.secured_pair import SecuredBroker
from tests.clients.walks.broker_pair import connect_sides, highest_versions
from tests.clients.walks.broker_side import BrokerSide
from tests.clients.walks.minimizing import minimize_steps
from tests.clients.walks.steps import Step
from tests.clients.walks.themes import generate_steps
from tests.clients.walks.walk import Difference, Walk


class Verdict(Enum):
    EQUAL = "equal"
    NONDETERMINISTIC = "ended where Kafka's own response varies"
    NOT_REPRODUCED = "differed once, but not when run again"
    DIFFERS = "different"


@dataclass(frozen=True, slots=True)
class WalkOutcome:
    """The result of a walk. `steps` lead to the difference; they are empty unless the verdict is
    DIFFERS.
    """

    seed: int
    verdict: Verdict
    difference: Difference | None = None
    steps: Sequence[Step] = ()

    def __str__(self) -> str:
        before = [
            f"  {at}: {step}" for at, step in enumerate(self.steps[: self.difference.at if self.difference else 0])
        ]
        return "\n".join((f"seed {self.seed}: {self.verdict.value}", *before, str(self.difference)))


class WalkRunner:
    """Runs walks; create it with `create_runner`. `steps_run` counts all steps so far."""

    def __init__(self, sides: Sequence[BrokerSide], highest: dict[str, int]) -> None:
        self.steps_run = 0
        self._sides = sides
        self._highest = highest
        self._walks = 0

    async def walk(self, seed: int, count: int, theme: str | None = None) -> WalkOutcome:
        """Runs a walk; again if there is a difference, because one that depends on timing seldom
        occurs twice.
        """
        steps = generate_steps(seed, count, self._highest, theme)
        found = await self._run(steps)
        if found is None:
            return WalkOutcome(seed, Verdict.EQUAL)
        if found.is_nondeterministic:
            return WalkOutcome(seed, Verdict.NONDETERMINISTIC)
        again = await self._run(steps)
        if again is not None and again.is_nondeterministic:
            again = await self._run(steps)
        if again is None or again.is_nondeterministic:
            return WalkOutcome(seed, Verdict.NOT_REPRODUCED, found)
        return WalkOutcome(seed, Verdict.DIFFERS, again, steps)

    async def minimize(self, outcome: WalkOutcome) -> WalkOutcome:
        """Minimizes the steps that lead to the difference."""
        if outcome.verdict is not Verdict.DIFFERS or outcome.difference is None:
            return outcome
        steps, found = await minimize_steps(list(outcome.steps), outcome.difference, self._run)
        return WalkOutcome(outcome.seed, outcome.verdict, found, steps)

    async def _run(self, steps: Sequence[Step]) -> Difference | None:
        walk = Walk(self._sides, f"w{self._walks}.")
        self._walks += 1
        found = await walk.run(steps)
        self.steps_run += walk.steps_run
        return found

    def close(self) -> None:
        for side in self._sides:
            side.close()


async def create_runner(kafka: SecuredBroker, ottla: SecuredBroker) -> WalkRunner:
    sides = await connect_sides(kafka, ottla)
    return WalkRunner(sides, await highest_versions(sides))
