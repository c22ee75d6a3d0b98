"""Partitions that are not as they should be, and what each waits for. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord


@dataclass(frozen=True, slots=True)
class WaitingPartition:
    """`problem` and `waits_for`: parts of a sentence."""

    topic: str
    partition: int
    problem: str
    waits_for: str


def is_waiting(state: PartitionRecord) -> bool:
    """True for a partition without a leader, with replicas that are not in sync, or in a
    reassignment.
    """
    return state.leader == NO_LEADER or len(state.isr) < len(state.replicas) or bool(state.adding or state.removing)


def describe_waiting(topic: str, state: PartitionRecord, brokers: Mapping[int, BrokerRegistration]) -> WaitingPartition:
    """Describes a partition for which `is_waiting` is true."""
    problem, waits_for = _describe(state, brokers)
    return WaitingPartition(topic, state.partition, problem, waits_for)


def _describe(state: PartitionRecord, brokers: Mapping[int, BrokerRegistration]) -> tuple[str, str]:
    if state.leader == NO_LEADER:
        trusted = (*state.isr, *state.eligible)
        if not trusted:  # the replicas that had every record have lost their directories
            return "no leader", "an unclean election: no replica is known to have every acknowledged record"
        who = f"one of {_name_brokers(trusted)}" if len(trusted) > 1 else _name_brokers(trusted)
        reason = "which have" if len(trusted) > 1 else "which has"
        return "no leader", f"{who} to return, {reason} every acknowledged record"
    out_of_sync = [one for one in state.replicas if one not in state.isr]
    absent = [one for one in out_of_sync if one not in brokers or brokers[one].fenced]
    catching_up = [one for one in out_of_sync if one not in absent]
    waits = []
    if absent:
        waits.append(f"{_name_brokers(absent)} to return")
    if catching_up:
        waits.append(f"{_name_brokers(catching_up)} to catch up")
    if state.adding or state.removing:
        target = [one for one in state.replicas if one not in state.removing]
        return f"reassigned to {_name_brokers(target)}", " and ".join(waits) or "the controller to end it"
    return f"not in sync: {_join_ids(out_of_sync)}", " and ".join(waits)


def _name_brokers(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {_join_ids(brokers)}"


def _join_ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
