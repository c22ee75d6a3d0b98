"""Partition reassignment (KIP-455): begin, complete, cancel. Pure.

During a reassignment, `replicas` are the targets followed by the replicas to remove, `adding` the
targets that were not replicas before, and `removing` the replicas to remove.

Invariants (rule 12): `replicas` without `adding` is the original assignment, so that a reassignment
can be cancelled at any time. It is completed only when every target is in the ISR, so no record is
ever on fewer in-sync replicas than the new assignment has. Neither begin nor cancel removes the
last member of the ISR.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from ottla_broker.counted_nouns import count_noun
from ottla_broker.metadata.election import (
    ElectionCandidates,
    TopicElectionRules,
    directory_of,
    elect_leader,
    trusted_replicas,
    with_next_epochs,
)
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


def target_replicas(state: PartitionRecord) -> tuple[int, ...]:
    """The replicas after the ongoing reassignment."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def original_replicas(state: PartitionRecord) -> tuple[int, ...]:
    """The replicas before the ongoing reassignment."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def is_reassigning(state: PartitionRecord) -> bool:
    return bool(state.adding or state.removing)


def begin_reassignment(
    old: PartitionRecord,
    targets: Sequence[int],
    directories: Mapping[int, UUID],
    candidates: ElectionCandidates,
    rules: TopicElectionRules,
) -> PartitionRecord | None:
    """Begins a reassignment to `targets`, and completes it if every target is in sync already. None
    if nothing changes, because this reassignment is ongoing or `targets` are the replicas. Another
    ongoing one is replaced, and the replicas that only that one added are removed at once.

    `directories`: log directories of new replicas. Raises INVALID_REPLICA_ASSIGNMENT when no member
    of the ISR would remain.
    """
    original = original_replicas(old)
    adding = tuple(broker for broker in targets if broker not in original)
    removing = tuple(broker for broker in original if broker not in targets)
    state = _with_replicas(old, (*targets, *removing), directories)
    state = replace(state, adding=adding, removing=removing)
    isr = _remaining_isr(old, state.replicas)
    state = elect_leader(state, isr, _trusted_among(old, state.replicas), candidates, rules)
    return with_next_epochs(old, complete_reassignment(state, candidates, rules) or state)


def complete_reassignment(
    state: PartitionRecord, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """`state` with its reassignment completed; None unless every target is in the ISR. Epochs are
    unchanged.
    """
    targets = target_replicas(state)
    if not is_reassigning(state) or not set(targets) <= set(state.isr):
        return None
    completed = replace(_with_replicas(state, targets, {}), adding=(), removing=())
    return elect_leader(completed, targets, (), candidates, rules)


def cancel_reassignment(
    old: PartitionRecord, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Restores the original replicas. Raises NO_REASSIGNMENT_IN_PROGRESS;
    INVALID_REPLICA_ASSIGNMENT when none of them is in sync."""
    if not is_reassigning(old):
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "the partition has no ongoing reassignment")
    original = original_replicas(old)
    isr = _remaining_isr(old, original)
    restored = replace(_with_replicas(old, original, {}), adding=(), removing=())
    return with_next_epochs(old, elect_leader(restored, isr, _trusted_among(old, original), candidates, rules))


def validate_targets(targets: Sequence[int], brokers: Collection[int], replication_factor: int | None) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT; INVALID_REPLICATION_FACTOR if `replication_factor` is
    given and would change.
    """
    if not targets or len(set(targets)) != len(targets) or min(targets) < 0:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment, f"replicas {list(targets)} are empty, repeat a broker or are negative"
        )
    if unknown := [broker for broker in targets if broker not in brokers]:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"no broker {unknown[0]} is registered")
    if replication_factor is not None and len(targets) != replication_factor:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"{count_noun(len(targets), 'replica')}, but the partition has {replication_factor} and its "
            "replication factor must not change",
        )


def _remaining_isr(old: PartitionRecord, replicas: Sequence[int]) -> list[int]:
    """Raises INVALID_REPLICA_ASSIGNMENT when none of the ISR is among the replicas."""
    isr = [broker for broker in old.isr if broker in replicas]
    if not isr and old.isr:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"none of the in-sync replicas {list(old.isr)} would remain among {list(replicas)}",
        )
    return isr


def _trusted_among(old: PartitionRecord, replicas: Collection[int]) -> list[int]:
    return [broker for broker in trusted_replicas(old) if broker in replicas]


def _with_replicas(
    state: PartitionRecord, replicas: tuple[int, ...], directories: Mapping[int, UUID]
) -> PartitionRecord:
    assigned = [directory_of(state, broker) or directories.get(broker) for broker in replicas]
    known = tuple(directory for directory in assigned if directory is not None)
    return replace(state, replicas=replicas, directories=known if len(known) == len(replicas) else ())
