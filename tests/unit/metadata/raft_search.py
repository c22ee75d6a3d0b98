"""Explores the worlds of `raft_model`: all within a budget, or long random walks."""

from dataclasses import dataclass
from random import Random

from tests.unit.metadata.raft_model import InvariantViolated, steps
from tests.unit.metadata.raft_world import RaftWorld, Rules

# Weights of steps whose label contains these words; other steps have weight 1.
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
class Exploration:
    """Result of a search or a walk. `worlds`: how many worlds a search reached, or how many steps
    a walk took. `violation`: the first violated invariant, None if there was none; `trace`: labels
    of the steps that led to it, or of all steps of a walk. `complete`: false if a search reached
    `max_worlds`.
    """

    worlds: int
    violation: str | None = None
    trace: tuple[str, ...] = ()
    complete: bool = True

    def __str__(self) -> str:
        return "\n".join((*self.trace, f"VIOLATION after {self.worlds} worlds: {self.violation}"))


def explore(start: RaftWorld, rules: Rules, max_worlds: int) -> Exploration:
    """Searches breadth-first every world within the budget of `start`, up to `max_worlds`. A
    violation is found with its shortest trace.
    """
    came_from: dict[RaftWorld, tuple[RaftWorld, str] | None] = {start: None}
    frontier = [start]
    while frontier:
        reached: list[RaftWorld] = []
        for world in frontier:
            for label, apply_step in steps(world, rules):
                try:
                    next_world = apply_step()
                except InvariantViolated as reason:
                    return Exploration(len(came_from), str(reason), (*trace_to(came_from, world), label))
                if (
                    next_world not in came_from
                    and max(node.raft.epoch for node in next_world.nodes) <= next_world.budget.epochs
                ):
                    came_from[next_world] = world, label
                    reached.append(next_world)
            if len(came_from) >= max_worlds:
                return Exploration(len(came_from), complete=False)
        frontier = reached
    return Exploration(len(came_from))


def trace_to(came_from: dict[RaftWorld, tuple[RaftWorld, str] | None], world: RaftWorld) -> tuple[str, ...]:
    trace: list[str] = []
    while (before := came_from[world]) is not None:
        world, label = before
        trace.append(label)
    return tuple(reversed(trace))


def random_walk(start: RaftWorld, rules: Rules, random: Random, length: int) -> Exploration:
    """Takes `length` random steps, fewer if one violates an invariant."""
    world: RaftWorld = start
    trace: list[str] = []
    while len(trace) < length:
        possible = list(steps(world, rules))
        weights = [weight_of(label) for label, _ in possible]
        label, apply_step = random.choices(possible, weights)[0]
        trace.append(label)
        try:
            world = apply_step()
        except InvariantViolated as reason:
            return Exploration(len(trace), str(reason), tuple(trace))
    return Exploration(length, trace=tuple(trace))


def weight_of(label: str) -> float:
    return next((weight for words, weight in WEIGHTS.items() if words in label), 1.0)
