"""Explores the worlds of `raft_model`: all that are within bounds, or some long ones at random."""

from dataclasses import dataclass
from random import Random

from tests.unit.metadata.raft_model import Broken, Rules, World, steps

# Of steps that contain these words; other steps weigh 1.
WEIGHTS = {
    "timer expires": 0.3,
    "restarts": 0.1,
    "disk": 0.1,
    "resigns": 0.1,
    "lost": 0.3,
    "pre-vote": 3,
    "has": 3,
    "fetches": 3,
}


@dataclass
class Explored:
    """`trace`: what happened before `broken`, the first violation; None if there was none."""

    worlds: int
    broken: str | None = None
    trace: tuple[str, ...] = ()
    complete: bool = True

    def __str__(self) -> str:
        return "\n".join((*self.trace, f"BROKEN after {self.worlds} worlds: {self.broken}"))


def explore(start: World, rules: Rules, most: int) -> Explored:
    """Every world that can be reached within the bounds of `start`, nearest first, up to `most`: a
    violation is found by its shortest trace."""
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    frontier = [start]
    while frontier:
        reached: list[World] = []
        for world in frontier:
            for what, take in steps(world, rules):
                try:
                    after = take()
                except Broken as reason:
                    return Explored(len(came_from), str(reason), (*trace_to(came_from, world), what))
                if after not in came_from and max(node.raft.epoch for node in after.nodes) <= after.left.epochs:
                    came_from[after] = world, what
                    reached.append(after)
            if len(came_from) >= most:
                return Explored(len(came_from), complete=False)
        frontier = reached
    return Explored(len(came_from))


def trace_to(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    trace: list[str] = []
    while (before := came_from[world]) is not None:
        world, what = before
        trace.append(what)
    return tuple(reversed(trace))


def wander(start: World, rules: Rules, random: Random, length: int) -> Explored:
    """One random trace."""
    world: World = start
    trace: list[str] = []
    while len(trace) < length:
        possible = list(steps(world, rules))
        weights = [weight_of(what) for what, _ in possible]
        what, take = random.choices(possible, weights)[0]
        trace.append(what)
        try:
            world = take()
        except Broken as reason:
            return Explored(len(trace), str(reason), tuple(trace))
    return Explored(length, trace=tuple(trace))


def weight_of(what: str) -> float:
    return next((weight for words, weight in WEIGHTS.items() if words in what), 1.0)
