"""A walk: each step put to both brokers, and their answers compared as soon as both are there."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.clients.test_same_answers import unequal
from tests.clients.walks.known import CHANCE, KNOWN
from tests.clients.walks.memory import Memory
from tests.clients.walks.shared import Form
from tests.clients.walks.side import Side
from tests.clients.walks.steps import WAIT, Step

WAITS_AFTER_S: Final = 0.06  # who has not answered a join or a sync by then waits for other members
LETS_GO_WITHIN_S: Final = 0.03
BOTH_WITHIN_S: Final = 4.0
NO_ANSWER: Final = "no answer"


@dataclass(slots=True)
class Difference:
    """Where a walk ended: the step by its place, and each place that differs. `by_chance`: Kafka itself may answer either."""

    at: int
    step: Step
    lines: list[str]
    by_chance: bool = False

    def __str__(self) -> str:
        return "\n".join((f"step {self.at}: {self.step}", *(f"    {line}" for line in self.lines)))


@dataclass(slots=True)
class Asked:
    at: int
    step: Step
    sent: list[dict[str, Any]]
    tasks: "list[asyncio.Task[Any]]"
    overtaken: bool = False  # the same member has asked the same anew: Kafka never answers this one, we do

    def overtakes(self, before: "Asked") -> bool:
        return (
            self.step.may_wait
            and self.step.api == before.step.api
            and all(
                mine["group_id"] == theirs["group_id"] and mine["member_id"] == theirs["member_id"] != ""
                for mine, theirs in zip(self.sent, before.sent, strict=True)
            )
        )


@dataclass(slots=True)
class Walk:
    """`sides`: Kafka, then Ottla."""

    sides: Sequence[Side]
    prefix: str
    waiting: list[Asked] = field(default_factory=list)
    walked: int = 0

    async def go(self, steps: Sequence[Step]) -> Difference | None:
        """The first difference."""
        memories = [Memory(self.prefix) for _ in self.sides]
        try:
            for at, step in enumerate(steps):
                if step.api == WAIT:
                    await asyncio.sleep(step.fields["seconds"])
                    if (found := await self._take(memories)) is not None:
                        return found
                    continue
                sent = [memory.value(step.fields) for memory in memories]
                tasks = [asyncio.create_task(side.ask(step, said)) for side, said in zip(self.sides, sent, strict=True)]
                asked = Asked(at, step, sent, tasks)
                for before in self.waiting:
                    before.overtaken = before.overtaken or asked.overtakes(before)
                self.waiting.append(asked)
                self.walked += 1
                if (found := await self._look(step, memories)) is not None:
                    return found
            return None
        finally:
            for asked in self.waiting:
                for task in asked.tasks:
                    task.cancel()
            await asyncio.gather(*(task for asked in self.waiting for task in asked.tasks), return_exceptions=True)
            for side, memory in zip(self.sides, memories, strict=True):
                await side.tidy(memory)

    async def _look(self, step: Step, memories: list[Memory]) -> Difference | None:
        """Takes the answers that are there, waiting a moment for those that this step may have let go."""
        *before, mine = self.waiting
        if not step.may_wait:
            await asyncio.wait(mine.tasks, timeout=BOTH_WITHIN_S)
            if not all(task.done() for task in mine.tasks):
                return self._compared(mine, memories)
        else:
            await asyncio.wait(mine.tasks, timeout=WAITS_AFTER_S)
        if before and "group" in step.api:
            others = [task for asked in before for task in asked.tasks]
            await asyncio.wait(others, timeout=LETS_GO_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if (found := await self._take(memories)) is not None:
            return found
        await asyncio.gather(*(side.settle(step, memory) for side, memory in zip(self.sides, memories, strict=True)))
        return None

    async def _take(self, memories: list[Memory]) -> Difference | None:
        """Compares what one of them has answered, as soon as both have."""
        for asked in list(self.waiting):
            if any(task.done() for task in asked.tasks):
                await asyncio.wait(asked.tasks, timeout=LETS_GO_WITHIN_S if asked.overtaken else BOTH_WITHIN_S)
                self.waiting.remove(asked)
                if asked.overtaken and not all(task.done() for task in asked.tasks):
                    asked.tasks[0].cancel()
                    continue
                if (found := self._compared(asked, memories)) is not None:
                    return found
        return None

    def _compared(self, asked: Asked, memories: list[Memory]) -> Difference | None:
        answers = [task.result() if task.done() else NO_ANSWER for task in asked.tasks]
        if not any(isinstance(answer, str) for answer in answers):
            for memory, sent, answer in zip(memories, asked.sent, answers, strict=True):
                memory.learn(asked.step, sent, answer)
        shared = [
            answer if isinstance(answer, str) else Form(memory.prefix, memory.symbols).of(answer)
            for memory, answer in zip(memories, answers, strict=True)
        ]
        lines = [f"{path} Kafka {theirs!r}, we {ours!r}" for path, theirs, ours in unequal(*shared)]
        lines = [line for line in lines if not any(known.fits(asked.step, line) for known in KNOWN)]
        if not lines:
            return None
        chance = any(re.match(pattern, f"{asked.step.api} {line}") for pattern in CHANCE for line in lines)
        return Difference(asked.at, asked.step, lines, chance)
