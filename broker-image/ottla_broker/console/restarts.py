"""Restarts of brokers in progress, and what each waits for. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_broker.console.broker_history import BrokerHistory, BrokerPhase
from ottla_broker.console.partition_census import PartitionCensus
from ottla_broker.console.rendering import format_bytes
from ottla_broker.counted_nouns import count_noun
from ottla_broker.wire.roll_report import RollBlocker, RollReport

RECENT_S: Final = 60.0
"""How long a broker that has restarted is shown, even if all its replicas are in sync."""
MAX_BLOCKERS: Final = 10
"""Partitions that hold up a rolling restart and are described; the others are counted."""
SILENT_S: Final = 60.0
"""The operator repeats its report every 15 s at least; above this age it seems to have stopped."""
NOTHING: Final = "nothing: all its replicas are in sync"


@dataclass(frozen=True, slots=True)
class Restart:
    """`age_s`: how long the broker has been in this state; None: longer than this broker has run.
    `waits_for`: a part of a sentence.
    """

    broker: int
    state: str
    age_s: float | None
    waits_for: str


def describe_restarts(
    brokers: Iterable[int],
    history: BrokerHistory,
    census: PartitionCensus,
    bytes_behind: Mapping[int, int],
    now_s: float,
) -> list[Restart]:
    """The brokers that are fenced or shutting down, have replicas that are not in sync, or
    restarted less than RECENT_S ago. `bytes_behind`: by broker, how many bytes shorter its replicas
    are than their leaders; without brokers of which it is unknown. `now_s`: by the clock of the
    history.
    """
    found = []
    for broker in sorted(brokers):
        phase, behind = history.phase(broker), census.behind[broker]
        age_s = None if phase.since_s is None else now_s - phase.since_s
        is_recent = phase.has_restarted and age_s is not None and age_s < RECENT_S
        if phase.state == "unfenced" and not behind and not is_recent:
            continue
        state = "restarted" if phase.state == "unfenced" and phase.has_restarted else phase.state
        waits_for = describe_wait(phase, census.leaders[broker], behind, bytes_behind.get(broker, -1))
        found.append(Restart(broker, state, age_s, waits_for))
    return found


def describe_wait(phase: BrokerPhase, leads: int, behind: int, bytes_behind: int) -> str:
    """What a broker waits for. `leads`: number of partitions that it leads. `behind`: number of its
    replicas that are not in sync. `bytes_behind`: −1: unknown.
    """
    match phase.state:
        case "shutting down":
            return f"{count_noun(leads, 'partition')} to get another leader" if leads else "its process to end"
        case "stopped":
            return "its process to start again"
        case "starting":
            return "its process to read the metadata log to the end"
        case "fenced":
            return "its heartbeats: its process does not run, or does not reach the controller"
        case "unfenced":
            size = f", {format_bytes(bytes_behind)} behind" if bytes_behind >= 0 else ""
            return f"{count_noun(behind, 'partition')} to catch up{size}" if behind else NOTHING


def describe_roll(report: RollReport, may_describe: Callable[[str], bool]) -> Iterator[str]:
    """Sentences about the rolling restart that the operator has reported. `may_describe`: True for
    topics that the user may see.
    """
    if report.pending:
        yield f"{_name_brokers(report.pending)} still to be restarted: {report.reason}."
    else:
        yield "Every broker has been restarted."
    if report.waits_for:
        yield f"The next step waits for {_name_brokers(report.waits_for).lower()} to serve again."
    for one in report.blocked_by[:MAX_BLOCKERS]:
        yield describe_blocker(one, may_describe(one.topic))
    if (more := len(report.blocked_by) - MAX_BLOCKERS) > 0:
        yield f"{count_noun(more, 'more partition')} {'holds' if more == 1 else 'hold'} it up."


def describe_blocker(blocker: RollBlocker, is_named: bool) -> str:
    partition = f"{blocker.topic}-{blocker.partition}" if is_named else "a partition that you may not describe"
    in_sync = ", ".join(map(str, blocker.isr)) or "no broker"
    beside = "one other replica" if blocker.needed == 1 else f"{blocker.needed} other replicas"
    return f"Broker {blocker.broker} waits for {partition}, which needs {beside} in sync; in sync: {in_sync}."


def _name_brokers(ids: Iterable[int]) -> str:
    names = list(map(str, ids))
    return f"Broker{'s' if len(names) > 1 else ''} {', '.join(names)}"
