"""What the operator, or `ottla up`, reports of a rolling restart to the active controller, as JSON.

It is the value of a config of resource type 105 with an empty name (docs/operator.md). The
controller keeps it in memory and puts nothing into the metadata log, as with reports of pipelines.
"""

from collections.abc import Iterable

import msgspec

from ottla_broker.wire.pipeline_report import REPORT, DescribedConfig

ROLL_RESOURCE = 105


class RollBlocker(msgspec.Struct, frozen=True, rename="camel"):
    """A partition that cannot lose `broker` now: `needed` other replicas must be in sync."""

    broker: int
    topic: str
    partition: int
    isr: tuple[int, ...]
    needed: int


class RollReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`pending`: brokers that are still to be restarted, for `reason`. `waits_for`: brokers that
    must serve again first. `blocked_by`: the first partitions that hold up the next restart.
    """

    pending: tuple[int, ...] = ()
    reason: str = ""
    waits_for: tuple[int, ...] = ()
    blocked_by: tuple[RollBlocker, ...] = ()


class StoredRoll(msgspec.Struct, frozen=True, rename="camel"):
    """A report as the controller describes it. `age_seconds`: since it came."""

    age_seconds: float
    report: RollReport


def read_roll(configs: Iterable[DescribedConfig]) -> StoredRoll | None:
    """The report among the configs that describe it; None while no rolling restart is in
    progress.
    """
    text = next((it.value for it in configs if it.name == REPORT), None)
    return None if text is None else msgspec.json.decode(text, type=StoredRoll)
