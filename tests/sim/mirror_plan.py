"""What a seed makes of a run with two clusters, one of which is a mirror of the other."""

from dataclasses import dataclass, replace
from random import Random

from tests.sim.plan import Plan

SOURCE_SIZES = (1, 3, 3)
COPY, FAILOVER, HOME = "copy", "failover", "home"  # how far a run goes
COURSES = (COPY, FAILOVER, FAILOVER, HOME, HOME)
COURSES_OF_APPENDED = (COPY, COPY, FAILOVER)
STOP, RESYNC = "Stop", "Resync"


@dataclass
class MirrorPlan:
    """`appended`: records get new offsets, beside those of the target's own producers. `forgets`: the source loses what it had acknowledged, because its promise is not kept to: copies part from it. `trims`: records of the source
    are deleted from the beginning of its partitions, `trims_inside` of batches too. `passing`: topics come and go there. Seconds: `fails_over_s`, `comes_home_s` after what came before; `faults_for_s` in all."""

    seed: int
    source: Plan
    target: Plan
    course: str = COPY
    appended: bool = False
    on_source_truncation: str = STOP
    forgets: bool = False
    trims: bool = False
    trims_inside: bool = False
    passing: bool = False
    strikes: bool = False  # who leads is killed in the moment of a failover, and when a log is cut
    set_at_once: bool = True  # the mirror is there before anything goes wrong
    fails_over_s: float = 0.0
    comes_home_s: float = 0.0
    faults_for_s: float = 6.0

    @classmethod
    def of(cls, seed: int) -> "MirrorPlan":
        random = Random(seed ^ 0x3177085)
        source = Plan.of(random.getrandbits(32), random.choice(SOURCE_SIZES))
        target = Plan.of(random.getrandbits(32), 3)
        target.partitions = source.partitions
        appended = random.randrange(4) == 0
        course = random.choice(COURSES_OF_APPENDED if appended else COURSES)
        plan = cls(seed, source, target, course, appended)
        plan.forgets = random.randrange(3) == 0
        if plan.forgets:
            plan.source = _forgetful(source)
        plan.on_source_truncation = random.choice((STOP, RESYNC))
        plan.trims = bool(random.randrange(2))
        plan.trims_inside = plan.trims and bool(random.randrange(2))
        plan.passing = bool(random.randrange(2)) and not appended
        plan.strikes = bool(random.randrange(2))
        plan.set_at_once = bool(random.randrange(3))
        plan.fails_over_s = random.uniform(2, 8)
        plan.comes_home_s = random.uniform(1, 5)
        plan.faults_for_s = {
            COPY: random.uniform(5, 14),
            FAILOVER: plan.fails_over_s + random.uniform(1, 5),
            HOME: plan.fails_over_s + plan.comes_home_s + random.uniform(1, 8),
        }[course]
        return plan

    @property
    def resyncs(self) -> bool:
        return self.on_source_truncation == RESYNC

    @property
    def remakes(self) -> bool:
        """Copies of topics that stay at the source may be made anew."""
        return self.forgets and self.resyncs and not self.appended

    @property
    def fails_over(self) -> bool:
        return self.course in (FAILOVER, HOME)

    @property
    def comes_home(self) -> bool:
        return self.course == HOME


def _forgetful(source: Plan) -> Plan:
    """Whatever loses power loses what was not synced, and whoever is left may lead."""
    settings = {name: value for name, value in source.settings.items() if name != "log.flush.interval.messages"}
    if source.brokers > 1:  # else a partition would wait for a person
        settings["unclean.leader.election.enable"] = "true"
    return replace(source, synced=False, forgets=True, settings=settings)
