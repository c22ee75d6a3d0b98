"""The parameters that a seed chooses for a run with two clusters, one of which mirrors the
other.
"""

from dataclasses import dataclass, replace
from random import Random

from tests.sim.mirrored_credentials import SOURCE_SETTINGS
from tests.sim.plan import Plan

SOURCE_SIZES = (1, 3, 3)
COPY, FAILOVER, FAILBACK = "copy", "failover", "failback"  # the last stage of a run
LAST_STAGES = (COPY, FAILOVER, FAILOVER, FAILBACK, FAILBACK)
LAST_STAGES_OF_APPENDED = (COPY, COPY, FAILOVER)
STOP, RESYNC = "Stop", "Resync"


@dataclass
class MirrorPlan:
    """`appended`: records get new offsets, beside those of the target's own producers.

    `loses_records`: the source loses acknowledged records, so that copies diverge from it.
    `deletes_records`: records are deleted from the start of the source's partitions;
    `deletes_inside_batches`: also up to offsets inside of batches. `has_temporary_topics`: topics
    are created and deleted at the source. `fails_over_s` and `fails_back_s` are seconds after the
    previous stage, `faults_for_s` is the total.
    """

    seed: int
    source: Plan
    target: Plan
    last_stage: str = COPY
    appended: bool = False
    on_source_truncation: str = STOP
    loses_records: bool = False
    deletes_records: bool = False
    deletes_inside_batches: bool = False
    has_temporary_topics: bool = False
    kills_leaders: bool = False  # leaders are killed during the failover, and while a log is truncated
    copies_users: bool = False  # the mirror copies SCRAM credentials, which come and go at the source
    mirrors_from_start: bool = True  # the mirror is created before the first fault
    fails_over_s: float = 0.0
    fails_back_s: float = 0.0
    faults_for_s: float = 6.0

    @classmethod
    def of(cls, seed: int) -> "MirrorPlan":
        random = Random(seed ^ 0x3177085)
        source = Plan.of(random.getrandbits(32), random.choice(SOURCE_SIZES))
        target = Plan.of(random.getrandbits(32), 3)
        target.partitions = source.partitions
        appended = random.randrange(4) == 0
        last_stage = random.choice(LAST_STAGES_OF_APPENDED if appended else LAST_STAGES)
        plan = cls(seed, source, target, last_stage, appended)
        plan.loses_records = random.randrange(3) == 0
        if plan.loses_records:
            plan.source = _without_syncs(source)
        plan.on_source_truncation = random.choice((STOP, RESYNC))
        plan.deletes_records = bool(random.randrange(2))
        plan.deletes_inside_batches = plan.deletes_records and bool(random.randrange(2))
        plan.has_temporary_topics = bool(random.randrange(2)) and not appended
        plan.kills_leaders = bool(random.randrange(2))
        plan.mirrors_from_start = bool(random.randrange(3))
        plan.copies_users = seed % 3 == 0
        if plan.copies_users:
            plan.source = replace(plan.source, settings={**plan.source.settings, **SOURCE_SETTINGS})
        plan.fails_over_s = random.uniform(2, 8)
        plan.fails_back_s = random.uniform(1, 5)
        plan.faults_for_s = {
            COPY: random.uniform(5, 14),
            FAILOVER: plan.fails_over_s + random.uniform(1, 5),
            FAILBACK: plan.fails_over_s + plan.fails_back_s + random.uniform(1, 8),
        }[last_stage]
        return plan

    @property
    def resyncs(self) -> bool:
        return self.on_source_truncation == RESYNC

    @property
    def recreates_copies(self) -> bool:
        """True if copies of topics that still exist at the source may be recreated."""
        return self.loses_records and self.resyncs and not self.appended

    @property
    def fails_over(self) -> bool:
        return self.last_stage in (FAILOVER, FAILBACK)

    @property
    def fails_back(self) -> bool:
        return self.last_stage == FAILBACK


def _without_syncs(source: Plan) -> Plan:
    """The source's plan without syncs, with unlimited power losses and unclean elections."""
    settings = {name: value for name, value in source.settings.items() if name != "log.flush.interval.messages"}
    if source.brokers > 1:  # otherwise a partition would wait for an administrator
        settings["unclean.leader.election.enable"] = "true"
    return replace(source, syncs_every_message=False, loses_records=True, settings=settings)
