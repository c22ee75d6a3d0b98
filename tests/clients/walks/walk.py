"""A walk: sends each step to both brokers and compares their responses."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.clients.response_differences import find_differences
from tests.clients.walks.broker_side import BrokerSide
from tests.clients.walks.known_differences import KNOWN_DIFFERENCES, NONDETERMINISTIC
from tests.clients.walks.normalized_responses import ResponseNormalizer
from tests.clients.walks.steps import INITIALIZE_SHARES, WAIT, Step
from tests.clients.walks.walk_state import WalkState

PENDING_AFTER_S: Final = 0.06  # a join or sync without response by then waits for other members
RELEASED_WITHIN_S: Final = 0.03
BOTH_WITHIN_S: Final = 4.0
NO_RESPONSE: Final = "no answer"


@dataclass(slots=True)
class Difference:
    """A difference: the step, its index, and each differing place.

    `is_nondeterministic`: Kafka's own response varies.
    """

    at: int
    step: Step
    lines: list[str]
    is_nondeterministic: bool = False

    def __str__(self) -> str:
        return "\n".join((f"step {self.at}: {self.step}", *(f"    {line}" for line in self.lines)))


async def send_and_time(side: BrokerSide, step: Step, sent: dict[str, Any], seconds: list[float], at: int) -> Any:
    """Sends a step; returns the response, and stores in `seconds[at]` how long it took."""
    started = time.monotonic()
    response = await side.send_step(step, sent)
    seconds[at] = time.monotonic() - started
    return response


@dataclass(slots=True)
class PendingStep:
    at: int
    step: Step
    sent: list[dict[str, Any]]
    tasks: "list[asyncio.Task[Any]]"
    seconds: list[float]  # that each broker took
    is_superseded: bool = False  # the member has repeated its request: Kafka never responds to this one, Ottla does

    def supersedes(self, before: "PendingStep") -> bool:
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
    """A walk through `sides`, Kafka first."""

    sides: Sequence[BrokerSide]
    prefix: str
    pending: list[PendingStep] = field(default_factory=list)
    steps_run: int = 0

    async def run(self, steps: Sequence[Step]) -> Difference | None:
        """Runs the steps; returns the first difference."""
        states = [WalkState(self.prefix) for _ in self.sides]
        try:
            for at, step in enumerate(steps):
                if step.api == WAIT:
                    await asyncio.sleep(step.fields["seconds"])
                    if (found := await self._compare_completed(states)) is not None:
                        return found
                    continue
                sent = [state.resolve(step.fields) for state in states]
                if step.api == INITIALIZE_SHARES:
                    pairs = zip(self.sides, sent, strict=True)
                    await asyncio.gather(*(side.initialize_shares(fields) for side, fields in pairs))
                    continue
                seconds = [0.0 for _ in self.sides]
                tasks = [
                    asyncio.create_task(send_and_time(side, step, message, seconds, number))
                    for number, (side, message) in enumerate(zip(self.sides, sent, strict=True))
                ]
                pending_step = PendingStep(at, step, sent, tasks, seconds)
                for before in self.pending:
                    before.is_superseded = before.is_superseded or pending_step.supersedes(before)
                self.pending.append(pending_step)
                self.steps_run += 1
                if (found := await self._collect(step, states)) is not None:
                    return found
            return None
        finally:
            for pending_step in self.pending:
                for task in pending_step.tasks:
                    task.cancel()
            await asyncio.gather(
                *(task for pending_step in self.pending for task in pending_step.tasks), return_exceptions=True
            )
            for side, state in zip(self.sides, states, strict=True):
                await side.clean_up(state)

    async def _collect(self, step: Step, states: list[WalkState]) -> Difference | None:
        """Collects the responses that have arrived, and waits briefly for those that this step may
        have released.
        """
        *before, mine = self.pending
        if not step.may_wait:
            await asyncio.wait(mine.tasks, timeout=BOTH_WITHIN_S)
            if not all(task.done() for task in mine.tasks):
                return self._compare(mine, states)
        else:
            await asyncio.wait(mine.tasks, timeout=PENDING_AFTER_S)
        if before and "group" in step.api:
            others = [task for pending_step in before for task in pending_step.tasks]
            await asyncio.wait(others, timeout=RELEASED_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if (found := await self._compare_completed(states)) is not None:
            return found
        await asyncio.gather(*(side.settle(step, state) for side, state in zip(self.sides, states, strict=True)))
        return None

    async def _compare_completed(self, states: list[WalkState]) -> Difference | None:
        """Waits for the second response to each step that has a first one, and compares them."""
        for pending_step in list(self.pending):
            if any(task.done() for task in pending_step.tasks):
                await asyncio.wait(
                    pending_step.tasks, timeout=RELEASED_WITHIN_S if pending_step.is_superseded else BOTH_WITHIN_S
                )
                self.pending.remove(pending_step)
                if pending_step.is_superseded and not all(task.done() for task in pending_step.tasks):
                    pending_step.tasks[0].cancel()
                    continue
                if (found := self._compare(pending_step, states)) is not None:
                    return found
        return None

    def _compare(self, pending_step: PendingStep, states: list[WalkState]) -> Difference | None:
        answers = [task.result() if task.done() else NO_RESPONSE for task in pending_step.tasks]
        if not any(isinstance(answer, str) for answer in answers):
            for state, sent, answer in zip(states, pending_step.sent, answers, strict=True):
                state.update(pending_step.step, sent, answer)
        shared = [
            answer if isinstance(answer, str) else ResponseNormalizer(state.prefix, state.symbols).normalize(answer)
            for state, answer in zip(states, answers, strict=True)
        ]
        if max_wait_ms := pending_step.step.fields.get("max_wait", 0):
            for response, seconds in zip(shared, pending_step.seconds, strict=True):
                if isinstance(response, dict):
                    response["waited"] = seconds * 1000 >= max_wait_ms
        lines = [f"{path} Kafka {theirs!r}, we {ours!r}" for path, theirs, ours in find_differences(*shared)]
        lines = [
            line for line in lines if not any(known.matches(pending_step.step, line) for known in KNOWN_DIFFERENCES)
        ]
        if not lines:
            return None
        is_nondeterministic = any(
            re.match(pattern, f"{pending_step.step.api} {line}") for pattern in NONDETERMINISTIC for line in lines
        )
        return Difference(pending_step.at, pending_step.step, lines, is_nondeterministic)
