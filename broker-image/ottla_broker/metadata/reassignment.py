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

from ottla_broker.metadata.election import Electorate, TopicElectionRules, directory_of, elected, next_state
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


def targets(state: PartitionRecord) -> tuple[int, ...]:
    """Where the partition is to be when nothing moves any more."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def before_move(state: PartitionRecord) -> tuple[int, ...]:
    """Where it was before anything moved."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def moves(state: PartitionRecord) -> bool:
    return bool(state.adding or state.removing)


def begun(
    old: PartitionRecord,
    wanted: Sequence[int],
    directories: Mapping[int, UUID],
    voters: Electorate,
    rules: TopicElectionRules,
) -> PartitionRecord | None:
    """On the way to `wanted`, or there already when that takes no new replica; None when it is on that way. A move that is on its way is
    replaced: what it was adding and is no longer wanted goes at once.

    `directories`: where new replicas will lie. INVALID_REPLICA_ASSIGNMENT when nobody of the ISR would be left.
    """
    before = before_move(old)
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
    moving = elected(moving, isr, _kept(old, moving.replicas), voters, rules)
    return next_state(old, completed(moving, voters, rules) or moving)


def completed(state: PartitionRecord, voters: Electorate, rules: TopicElectionRules) -> PartitionRecord | None:
    """`state` with its move at the end, when every target is in the ISR; None while it is not. Epochs are not raised."""
    wanted = targets(state)
    if not moves(state) or not set(wanted) <= set(state.isr):
        return None
    there = msgspec.structs.replace(_with_replicas(state, wanted, {}), adding=(), removing=())
    return elected(there, wanted, (), voters, rules)


def cancelled(old: PartitionRecord, voters: Electorate, rules: TopicElectionRules) -> PartitionRecord | None:
    """Back to the replicas before the move. NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT when none of those is in sync."""
    if not moves(old):
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "the partition does not move")
    before = before_move(old)
    isr = [broker for broker in old.isr if broker in before]
    if not isr and old.isr:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"of the in-sync replicas {list(old.isr)} none is among those before the move, {list(before)}",
        )
    back = msgspec.structs.replace(_with_replicas(old, before, {}), adding=(), removing=())
    return next_state(old, elected(back, isr, _kept(old, before), voters, rules))


def check_targets(wanted: Sequence[int], known: Collection[int], current: int | None) -> None:
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


def _kept(old: PartitionRecord, replicas: Collection[int]) -> list[int]:
    return [broker for broker in (*old.isr, *old.eligible) if broker in replicas]


def _with_replicas(
    state: PartitionRecord, replicas: tuple[int, ...], directories: Mapping[int, UUID]
) -> PartitionRecord:
    found = [directory_of(state, broker) or directories.get(broker) for broker in replicas]
    known = tuple(directory for directory in found if directory is not None)
    return msgspec.structs.replace(state, replicas=replicas, directories=known if len(known) == len(replicas) else ())
