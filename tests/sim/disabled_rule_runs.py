"""Runs with one rule of the broker disabled, and how many of them detect it.

A patch that does not match the broker's code makes the broker fail for other reasons. Such a run
raises PatchError and does not count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import Final

from tests.sim import (
    disabled_access_rules,
    disabled_group_rules,
    disabled_mirroring_rules,
    disabled_quorum_rules,
    disabled_replication_rules,
    disabled_rules,
    disabled_share_rules,
    disabled_streams_rules,
    disabled_transaction_rules,
)
from tests.sim.mirror_plan import MirrorPlan
from tests.sim.mirror_scenario import run_mirror_seed
from tests.sim.plan import Plan
from tests.sim.scenario import (
    run_access_seed,
    run_metadata_seed,
    run_seed,
    run_share_seed,
    run_streams_seed,
    run_transaction_seed,
)
from tests.sim.simulation import Outcome

RunPlan = Plan | MirrorPlan
ONE, THREE, FIVE = 1, 3, 5
MAX_SEEDS_TRIED: Final = 100  # after those that detected a rule before: the seeds with the shortest runs
SEEDS_CHOSEN_FROM: Final = 1000
TWO_CLUSTERS = 0  # in place of the number of brokers
# With two of three brokers stopped no ISR or leader can change, so these rules need five brokers.
NEED_FIVE_BROKERS: Final = (
    disabled_replication_rules.min_insync_replicas_ignored,
    disabled_replication_rules.unclean_elections,
)
PATCH_ERRORS: Final = ("TypeError(", "AttributeError(", "NameError(", "ImportError(")
# Part of a violation's description → name of the invariant. The first that matches counts. "_" is
# in the names of error codes.
INVARIANT_BY_TEXT: Final = {
    "zombie:": "zombie not fenced",
    "aborted and visible:": "aborted record visible",
    "partly visible:": "part of a transaction visible",
    "read and not committed:": "uncommitted record read",
    "output without offset:": "output without offset",
    "output of nothing:": "output of an uncommitted record",
    "hanging:": "hanging transaction",
    "delivered again:": "delivered after its acknowledgement",
    "delivery count:": "wrong delivery count",
    "not acquired:": "acknowledged without being acquired",
    "sharers do not finish": "lost",
    "no dead letter:": "dead letter lost",
    "the last stable offset of": "last stable offset went back",
    "lost:": "lost",
    "replaced:": "replaced",
    "of another topic:": "of another topic",
    "not sent:": "not sent",
    "duplicate:": "duplicate",
    "out of order:": "out of order",
    "two controllers:": "two controllers",
    "elected without committed metadata:": "elected without committed metadata",
    "committed metadata replaced:": "committed metadata replaced",
    "two clusters:": "two clusters",
    "disturbed:": "leader disturbed",
    "not resigned:": "leader without majority",
    "both lead": "two leaders",
    "electable:": "electable without the records",
    "changed:": "changed after a read",
    "where it had read": "two values read at one offset",
    "above the high watermark": "uncommitted record read",
    "skipped:": "committed without reading",
    "'s commit of": "commit went back",
    "two owners:": "two owners",
    "the high watermark": "high watermark went back",
    "metadata logs of": "metadata differ",
    "the images of": "metadata differ",
    "replicas of": "replicas differ",
    "came back": "reappeared after its deletion",
    "was acknowledged": "metadata lost",
    "no convergence": "no convergence",
    "not settled": "not settled",
    "mixed:": "mixed",
    "differs:": "copy differs",
    "accepted:": "accepted before failover",
    "_": "client error",
}


def any_plan(plan: RunPlan) -> bool:
    return True


def fails_back_diverged(plan: RunPlan) -> bool:
    return isinstance(plan, MirrorPlan) and plan.fails_back and plan.loses_records and not plan.appended


def has_dead_letters(plan: RunPlan) -> bool:
    return isinstance(plan, Plan) and plan.has_dead_letters


@dataclass(frozen=True, slots=True)
class DisabledRule:
    """A rule of the broker. Inside `disable()` the broker runs without it.

    `brokers` is the number of brokers of a run that can detect this, or `TWO_CLUSTERS`. `run`: runs
    a seed that can detect this. `can_detect`: False if a run with this plan has nothing to do with
    the rule.
    """

    name: str
    disable: Callable[[], AbstractContextManager[None]]
    brokers: int
    run: "partial[Outcome]" = run_seed
    can_detect: Callable[[RunPlan], bool] = any_plan


RULES: Final = (
    *(DisabledRule(name, disable, ONE) for name, disable in disabled_rules.RULES.items()),
    *(DisabledRule(name, disable, ONE) for name, disable in disabled_group_rules.RULES.items()),
    *(DisabledRule(name, disable, ONE, run_streams_seed) for name, disable in disabled_streams_rules.RULES.items()),
    *(
        DisabledRule(
            name,
            disable,
            TWO_CLUSTERS,
            can_detect=fails_back_diverged if disable in disabled_mirroring_rules.OF_DIVERGED_COPIES else any_plan,
        )
        for name, disable in disabled_mirroring_rules.RULES.items()
    ),
    *(
        DisabledRule(name, disable, FIVE if disable in NEED_FIVE_BROKERS else THREE)
        for name, disable in disabled_replication_rules.RULES.items()
    ),
    *(DisabledRule(name, disable, THREE, run_metadata_seed) for name, disable in disabled_quorum_rules.RULES.items()),
    *(
        DisabledRule(name, disable, THREE, run_transaction_seed)
        for name, disable in disabled_transaction_rules.RULES.items()
    ),
    *(
        DisabledRule(
            name,
            disable,
            THREE,
            run_share_seed,
            can_detect=has_dead_letters if disable in disabled_share_rules.OF_DEAD_LETTERS else any_plan,
        )
        for name, disable in disabled_share_rules.RULES.items()
    ),
    *(DisabledRule(name, disable, THREE, run_access_seed) for name, disable in disabled_access_rules.RULES.items()),
)
NAMES: Final = tuple(dict.fromkeys(rule.name for rule in RULES))


class PatchError(Exception):
    """A patch does not match the broker's code."""


def detecting_seed(rule: DisabledRule, likely_seeds: Sequence[int], last: int | None = None) -> int | None:
    """A seed whose run without the rule violates an invariant; None if no tried seed does.

    `likely_seeds` have detected it before, and `last` is the one that did so last. Any change of
    the broker changes all runs, so other seeds are tried after them, those with the shortest runs
    first, because a few short runs detect more than a long one. A seed that is not among
    `likely_seeds` detects the rule only if its run with the rule violates nothing: otherwise the
    rule is not the cause.
    """
    first = likely_seeds if last is None else (last, *likely_seeds)
    return next(
        (
            seed
            for seed in dict.fromkeys(chain(first, shortest_seeds(rule)))
            if run_without_rule(rule, seed).violations
            and (seed in likely_seeds or not _run_seed_of(rule, seed).violations)
        ),
        None,
    )


def shortest_seeds(rule: DisabledRule) -> Sequence[int]:
    """At most `MAX_SEEDS_TRIED` seeds that can detect the rule, those whose faults end first in
    front. Seeds with two clusters are not sorted, because the shortest runs never fail over.
    """
    choose_plan: Callable[[int], RunPlan] = (
        MirrorPlan.of if rule.brokers == TWO_CLUSTERS else partial(rule.run.args[0], brokers=rule.brokers)
    )
    plans = {seed: choose_plan(seed) for seed in range(1, SEEDS_CHOSEN_FROM + 1)}
    seeds = [seed for seed, plan in plans.items() if rule.can_detect(plan)]
    if rule.brokers != TWO_CLUSTERS:
        seeds.sort(key=lambda seed: plans[seed].faults_for_s)
    return seeds[:MAX_SEEDS_TRIED]


def run_without_rule(rule: DisabledRule, seed: int, *, on_line: Callable[[str], None] | None = None) -> Outcome:
    """Runs one seed without this rule. Raises PatchError."""
    with rule.disable():
        outcome = _run_seed_of(rule, seed, on_line=on_line)
    for violation in outcome.violations:
        if any(text in violation for text in PATCH_ERRORS):
            raise PatchError(f"{rule.name}, seed {seed}: {violation}")
    return outcome


def _run_seed_of(rule: DisabledRule, seed: int, *, on_line: Callable[[str], None] | None = None) -> Outcome:
    """Runs one seed that can detect the rule, without disabling it."""
    if rule.brokers == TWO_CLUSTERS:
        return run_mirror_seed(seed, on_line=on_line)
    return rule.run(seed, rule.brokers, on_line=on_line)


def rules_with_name(wanted: str) -> list[DisabledRule]:
    """Rules with this name; all for "all". Raises ValueError."""
    found = [rule for rule in RULES if wanted in ("all", rule.name)]
    if not found:
        raise ValueError(f"unknown rule {wanted!r}; known: all, {', '.join(NAMES)}")
    return found


@dataclass
class Detections:
    """The runs without one rule: their number, the seeds that detected this, and by invariant the
    number of seeds that violated it.
    """

    rule: DisabledRule
    runs: int = 0
    detected_by: list[int] = field(default_factory=list)
    invariants: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, violations: Sequence[str]) -> None:
        self.runs += 1
        if violations:
            self.detected_by.append(seed)
            self.invariants.update({_invariant_of(violation) for violation in violations})


def _invariant_of(violation: str) -> str:
    return next((name for sign, name in INVARIANT_BY_TEXT.items() if sign in violation), "something else")


def detect(rules: Iterable[DisabledRule], seeds: Sequence[int], jobs: int) -> list[Detections]:
    """Runs every seed without each rule in turn, in `jobs` processes. Raises PatchError."""
    detections = {rule: Detections(rule) for rule in rules}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        running = {workers.submit(run_without_rule, rule, seed): rule for rule in detections for seed in seeds}
        for done in as_completed(running):
            outcome = done.result()
            detections[running[done]].add(outcome.seed, outcome.violations)
    return list(detections.values())


def markdown_table(detections: Iterable[Detections]) -> Iterator[str]:
    """A Markdown table, line by line."""
    yield "| disabled rule | brokers | detected by | violated invariants (seeds) | first seeds |"
    yield "|---|---|---|---|---|"
    for one in detections:
        invariants = ", ".join(f"{name} {count}" for name, count in one.invariants.most_common())
        first = ", ".join(str(seed) for seed in sorted(one.detected_by)[:6])
        yield (
            f"| {one.rule.name} | {one.rule.brokers or 'two clusters'} | {len(one.detected_by)} of {one.runs} "
            f"| {invariants} | {first} |"
        )
