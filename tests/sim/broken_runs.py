"""What the checks are worth: runs with one rule of the broker switched off, and by how many of them that is noticed.

A patch that does not fit the broker any more makes it fail in ways that prove nothing: such a run is an error here, not a catch.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from tests.sim import broken_mirroring, broken_replication, broken_rules
from tests.sim.mirror_scenario import run_mirrors
from tests.sim.scenario import run
from tests.sim.simulation import Outcome

ONE, THREE, FIVE = 1, 3, 5
MIRRORED = 0  # two clusters, one of which is a mirror of the other
# Where two of three are gone the metadata stand still, and with them ISRs and elections: what happens then takes five.
WITH_FIVE: Final = ("acks by an isr that is too small", "unclean elections")
MISFITS: Final = ("TypeError(", "AttributeError(", "NameError(", "ImportError(")
# What is said of a broken promise → which one it is.
SIGNS: Final = {
    "lost:": "lost",
    "replaced:": "replaced",
    "of another topic:": "of another topic",
    "nobody sent": "from nowhere",
    "doubled:": "doubled",
    "out of order:": "out of order",
    "both lead": "two leaders",
    "trusted:": "trusted without having it",
    "unread:": "read and not kept",
    "where it had read": "read two things",
    "above the high watermark": "read uncommitted",
    "skipped:": "skipped",
    "'s commit of": "commit went back",
    "the high watermark": "high watermark went back",
    "metadata logs of": "metadata differ",
    "the images of": "metadata differ",
    "replicas of": "replicas differ",
    "was acknowledged": "metadata lost",
    "no convergence": "no convergence",
    "no rest": "no rest",
    "mixed:": "mixed",
    "not one:": "not one log",
    "taken:": "taken while closed",
    "_": "a client's error",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """`off`: a run inside of it goes without the rule. `brokers`: how many such a run has; `MIRRORED`."""

    name: str
    off: Callable[[], AbstractContextManager[None]]
    brokers: int


RULES: Final = (
    *(Rule(name, off, ONE) for name, off in broken_rules.BROKEN.items()),
    *(Rule(name, off, MIRRORED) for name, off in broken_mirroring.BROKEN.items()),
    *(Rule(name, off, FIVE if name in WITH_FIVE else THREE) for name, off in broken_replication.BROKEN.items()),
)
NAMES: Final = tuple(dict.fromkeys(rule.name for rule in RULES))


class MisfitError(Exception):
    """A patch does not fit the broker any more."""


def run_broken(rule: Rule, seed: int, *, tell: Callable[[str], None] | None = None) -> Outcome:
    """One seed without this rule. MisfitError."""
    with rule.off():
        outcome = run_mirrors(seed, tell=tell) if rule.brokers == MIRRORED else run(seed, rule.brokers, tell=tell)
    for promise in outcome.broken:
        if any(misfit in promise for misfit in MISFITS):
            raise MisfitError(f"{rule.name}, seed {seed}: {promise}")
    return outcome


def rules_of(wanted: str) -> list[Rule]:
    """Those of this name; "all". ValueError."""
    found = [rule for rule in RULES if wanted in ("all", rule.name)]
    if not found:
        raise ValueError(f"there is no rule {wanted!r} to break: all, or one of {', '.join(NAMES)}")
    return found


@dataclass
class Catches:
    """Of one rule: the seeds that ran, those that noticed, and which promises they found broken, by seeds."""

    rule: Rule
    ran: int = 0
    by: list[int] = field(default_factory=list)
    promises: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, broken: Sequence[str]) -> None:
        self.ran += 1
        if broken:
            self.by.append(seed)
            self.promises.update({_which(promise) for promise in broken})


def _which(promise: str) -> str:
    return next((name for sign, name in SIGNS.items() if sign in promise), "something else")


def catches(rules: Iterable[Rule], seeds: Sequence[int], jobs: int) -> list[Catches]:
    """Each rule with each seed, in so many processes. MisfitError."""
    caught = {rule: Catches(rule) for rule in rules}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        running = {workers.submit(run_broken, rule, seed): rule for rule in caught for seed in seeds}
        for done in as_completed(running):
            outcome = done.result()
            caught[running[done]].add(outcome.seed, outcome.broken)
    return list(caught.values())


def table(caught: Iterable[Catches]) -> Iterator[str]:
    """In Markdown."""
    yield "| switched off | brokers | caught by | by which promises (seeds) | first seeds |"
    yield "|---|---|---|---|---|"
    for one in caught:
        promises = ", ".join(f"{name} {count}" for name, count in one.promises.most_common())
        first = ", ".join(str(seed) for seed in sorted(one.by)[:6])
        yield f"| {one.rule.name} | {one.rule.brokers or 'two clusters'} | {len(one.by)} of {one.ran} | {promises} | {first} |"
