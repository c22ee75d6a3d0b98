"""What it means in records that a broker comes, is heard, is lost, stops or is taken out: pure.

Every plan is the records of one commit: the broker's own change, and the next state of every partition that it touches. What a partition's state
becomes is `election`'s.
"""

from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from ottla_broker.metadata import election
from ottla_broker.metadata.election import ElectionCandidates, TopicElectionRules, directory_of
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError

TopicRulesLookup = Callable[[UUID], TopicElectionRules]
"""A topic's election rules, by its id."""

UNCLEAN_SHUTDOWN = -1  # the previous broker epoch of a broker that did not stop cleanly


def election_candidates(image: MetadataImage) -> ElectionCandidates:
    return ElectionCandidates(
        unfenced={broker.id: broker.directories for broker in image.brokers.values() if not broker.fenced},
        shutting_down=[broker.id for broker in image.brokers.values() if broker.shutting_down],
    )


def validate_registration(image: MetadataImage, coming: RegisterBrokerRecord, *, in_session: bool) -> None:
    """DUPLICATE_BROKER_REGISTRATION when another process lives under this id, INVALID_REGISTRATION for what no broker can be.

    Two processes never share a log directory (each locks it), so one that comes with a directory of its predecessor proves that this is gone.
    """
    if not coming.endpoints or not coming.directories or len(set(coming.directories)) != len(coming.directories):
        raise KafkaError(
            ErrorCode.invalid_registration, f"broker {coming.broker} names no listener, or no directory, or one twice"
        )
    known = image.brokers.get(coming.broker)
    if known is None or not in_session or known.incarnation == coming.incarnation:
        return
    if not set(known.directories) & set(coming.directories):
        raise KafkaError(
            ErrorCode.duplicate_broker_registration,
            f"another process is broker {coming.broker} and was heard a moment ago; it may take its place when it is silent for a session",
        )


def plan_registration(
    image: MetadataImage, coming: RegisterBrokerRecord, previous_epoch: int, rules_of: TopicRulesLookup
) -> list[MetadataRecord]:
    """A broker has come, fenced until it is heard: what it led goes to others, and it is trusted with as much as its previous life warrants.

    `previous_epoch`: its epoch when it last stopped cleanly, or UNCLEAN. Nothing when exactly this is registered already: a request that was
    sent twice.
    """
    known = image.brokers.get(coming.broker)
    if known is not None and _is_same_registration(known, coming):
        return []
    voters = election_candidates(image).without(coming.broker)
    lost_nothing = known is not None and previous_epoch == known.epoch
    lost = _has_lost_directory(known, coming)
    changed = []
    for state in image.partitions_on_broker(coming.broker):
        rules = rules_of(state.topic)
        if _is_replica_lost(state, coming, lost):
            changed.append(
                election.state_after_directory_loss(state, coming.broker, coming.directories[0], voters, rules)
            )
        elif lost_nothing and not _had_failed_directory(state, known, coming):
            changed.append(election.state_after_fencing(state, coming.broker, voters, rules))
        else:
            changed.append(election.state_after_unclean_shutdown(state, coming.broker, voters, rules))
    return [*_changed_states(changed), coming]


def _is_same_registration(known: BrokerRegistration, coming: RegisterBrokerRecord) -> bool:
    return (known.incarnation, known.endpoints, known.rack, known.directories, known.http) == (
        coming.incarnation,
        coming.endpoints,
        coming.rack,
        coming.directories,
        coming.http,
    )


def _has_lost_directory(known: BrokerRegistration | None, coming: RegisterBrokerRecord) -> bool:
    return known is not None and not set(known.directories) <= set(coming.directories)


def _is_replica_lost(state: PartitionRecord, coming: RegisterBrokerRecord, lost_any: bool) -> bool:
    where = directory_of(state, coming.broker)
    return lost_any if where is None else where not in coming.directories


def _had_failed_directory(
    state: PartitionRecord, known: BrokerRegistration | None, coming: RegisterBrokerRecord
) -> bool:
    """Whether the replica's directory was reported as failed in the broker's last life: then it may lack anything."""
    where = directory_of(state, coming.broker)
    had = () if known is None else known.directories
    return where not in had if where is not None else not set(coming.directories) <= set(had)


def plan_fencing(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """The broker is silent, or wants it: nothing is led by it any more, and it is in no ISR that has others. Nothing when it is fenced."""
    known = image.brokers.get(broker)
    if known is None or known.fenced:
        return []
    voters = election_candidates(image).without(broker)
    changed = (
        election.state_after_fencing(s, broker, voters, rules_of(s.topic)) for s in image.partitions_on_broker(broker)
    )
    return [*_changed_states(changed), BrokerRegistrationChangeRecord(broker, known.epoch, True, known.shutting_down)]


def plan_unfencing(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """The broker is heard and knows the metadata: it may lead what has no leader. Nothing when it is unfenced, or about to stop."""
    known = image.brokers[broker]
    if not known.fenced or known.shutting_down:
        return []
    voters = election_candidates(image)
    voters = ElectionCandidates({**voters.unfenced, broker: known.directories}, voters.shutting_down)
    changed = (election.state_after_unfencing(s, voters, rules_of(s.topic)) for s in image.partitions_on_broker(broker))
    return [BrokerRegistrationChangeRecord(broker, known.epoch, False), *_changed_states(changed)]


def plan_controlled_shutdown(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """The broker wants to stop: others lead where others in sync can. Asked again until nothing is left to do."""
    known = image.brokers[broker]
    voters = election_candidates(image).with_shutting_down(broker)
    changed = _changed_states(
        election.state_after_shutdown_request(s, broker, voters, rules_of(s.topic))
        for s in image.partitions_on_broker(broker)
    )
    said: list[MetadataRecord] = (
        []
        if known.shutting_down
        else [BrokerRegistrationChangeRecord(broker, known.epoch, known.fenced, shutting_down=True)]
    )
    return [*said, *changed]


def plan_directory_failure(
    image: MetadataImage, broker: int, offline: Collection[UUID], rules_of: TopicRulesLookup
) -> list[MetadataRecord]:
    """Directories of a broker have failed: what lies on them is led by others. They are taken for good again when the broker comes anew."""
    known = image.brokers[broker]
    left = tuple(directory for directory in known.directories if directory not in offline)
    if left == known.directories:
        return []
    voters = election_candidates(image)
    if not known.fenced:
        voters = ElectionCandidates({**voters.unfenced, broker: left}, voters.shutting_down)
    changed = (
        election.state_after_fencing(s, broker, voters, rules_of(s.topic))
        for s in image.partitions_on_broker(broker)
        if directory_of(s, broker) in offline
    )
    return [
        BrokerRegistrationChangeRecord(broker, known.epoch, known.fenced, known.shutting_down, left),
        *_changed_states(changed),
    ]


def plan_unregistration(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """The broker is taken out of the cluster; its replicas stay where they are until they are reassigned. BROKER_ID_NOT_REGISTERED."""
    known = image.brokers.get(broker)
    if known is None:
        raise KafkaError(ErrorCode.broker_id_not_registered, f"no broker {broker} is registered")
    voters = election_candidates(image).without(broker)
    changed = (
        election.state_after_fencing(s, broker, voters, rules_of(s.topic)) for s in image.partitions_on_broker(broker)
    )
    return [*_changed_states(changed), UnregisterBrokerRecord(broker, known.epoch)]


def _changed_states(states: Iterable[PartitionRecord | None]) -> list[PartitionRecord]:
    return [state for state in states if state is not None]
