"""Moving a partition to other brokers (KIP-455): begin, end, cancel. Pure.

While a partition moves, `replicas` are its targets and then those that will leave, `adding` are the targets that were no replicas before, and
`removing` those that will leave.

Invariant (design rule 12): `replicas` without `adding` is what it was before, so that a move can be cancelled at any time; a move ends only
when every target is in the ISR, so no record is ever held by fewer in-sync brokers than the reassignment was to give it. Neither a begin nor a
cancel takes the last of the ISR away.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import msgspec

from ottla_broker.metadata.election import (
    ElectionCandidates,
    TopicElectionRules,
    directory_of,
    elect_leader,
    with_next_epochs,
)
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


def target_replicas(state: PartitionRecord) -> tuple[int, ...]:
    """Where the partition is to be when nothing moves any more."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def original_replicas(state: PartitionRecord) -> tuple[int, ...]:
    """Where it was before anything moved."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def is_reassigning(state: PartitionRecord) -> bool:
    return bool(state.adding or state.removing)


def begin_reassignment(
    old: PartitionRecord,
    wanted: Sequence[int],
    directories: Mapping[int, UUID],
    voters: ElectionCandidates,
    rules: TopicElectionRules,
) -> PartitionRecord | None:
    """On the way to `wanted`, or there already when that takes no new replica; None when it is on that way. A move that is on its way is
    replaced: what it was adding and is no longer wanted goes at once.

    `directories`: where new replicas will lie. INVALID_REPLICA_ASSIGNMENT when nobody of the ISR would be left.
    """
    before = original_replicas(old)
    adding = tuple(broker for broker in wanted if broker not in before)
    removing = tuple(broker for broker in before if broker not in wanted)
    moving = _with_replicas(old, (*wanted, *removing), directories)
    moving = msgspec.structs.replace(moving, adding=adding, removing=removing)
    isr = [broker for broker in old.isr if broker in moving.replicas]
    if not isr and old.isr:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"of the in-sync replicas {list(old.isr)} none would be left among {list(moving.replicas)}",
        )
    moving = elect_leader(moving, isr, _trusted_among(old, moving.replicas), voters, rules)
    return with_next_epochs(old, complete_reassignment(moving, voters, rules) or moving)


def complete_reassignment(
    state: PartitionRecord, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """`state` with its move at the end, when every target is in the ISR; None while it is not. Epochs are not raised."""
    wanted = target_replicas(state)
    if not is_reassigning(state) or not set(wanted) <= set(state.isr):
        return None
    there = msgspec.structs.replace(_with_replicas(state, wanted, {}), adding=(), removing=())
    return elect_leader(there, wanted, (), voters, rules)


def cancel_reassignment(
    old: PartitionRecord, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Back to the replicas before the move. NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT when none of those is in sync."""
    if not is_reassigning(old):
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "the partition does not move")
    before = original_replicas(old)
    isr = [broker for broker in old.isr if broker in before]
    if not isr and old.isr:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"of the in-sync replicas {list(old.isr)} none is among those before the move, {list(before)}",
        )
    back = msgspec.structs.replace(_with_replicas(old, before, {}), adding=(), removing=())
    return with_next_epochs(old, elect_leader(back, isr, _trusted_among(old, before), voters, rules))


def validate_targets(wanted: Sequence[int], known: Collection[int], current: int | None) -> None:
    """INVALID_REPLICA_ASSIGNMENT; INVALID_REPLICATION_FACTOR when `current` is the number of replicas that must stay."""
    if not wanted or len(set(wanted)) != len(wanted) or min(wanted) < 0:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment, f"replicas {list(wanted)} are empty, repeat a broker or are negative"
        )
    if unknown := [broker for broker in wanted if broker not in known]:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"no broker {unknown[0]} is registered")
    if current is not None and len(wanted) != current:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"{len(wanted)} replicas, but the partition has {current} and its replication factor is not to change",
        )


def _trusted_among(old: PartitionRecord, replicas: Collection[int]) -> list[int]:
    return [broker for broker in (*old.isr, *old.eligible) if broker in replicas]


def _with_replicas(
    state: PartitionRecord, replicas: tuple[int, ...], directories: Mapping[int, UUID]
) -> PartitionRecord:
    found = [directory_of(state, broker) or directories.get(broker) for broker in replicas]
    known = tuple(directory for directory in found if directory is not None)
    return msgspec.structs.replace(state, replicas=replicas, directories=known if len(known) == len(replicas) else ())
