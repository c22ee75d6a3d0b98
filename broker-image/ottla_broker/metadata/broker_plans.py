"""Plans for brokers that register, are fenced or unfenced, shut down, lose directories or are
unregistered. Pure.

Each plan is one commit: the broker's own record and the next state of every partition with a
replica on it, which `election` decides.
"""

from collections.abc import Callable, Collection
from uuid import UUID

from ottla_broker.metadata import election
from ottla_broker.metadata.election import ElectionCandidates, TopicRulesLookup, directory_of
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


def election_candidates(image: MetadataImage) -> ElectionCandidates:
    """The brokers that may lead, according to the image."""
    return ElectionCandidates(
        unfenced={broker.id: broker.directories for broker in image.brokers.values() if not broker.fenced},
        shutting_down=[broker.id for broker in image.brokers.values() if broker.shutting_down],
    )


def validate_registration(image: MetadataImage, registration: RegisterBrokerRecord, *, in_session: bool) -> None:
    """Raises INVALID_REGISTRATION; DUPLICATE_BROKER_REGISTRATION when another process with this
    broker id has a session. `in_session`: whether the process that is registered now has one.

    A process locks its log directories, so one that registers with a directory of its predecessor
    proves that the predecessor has ended.
    """
    directories = registration.directories
    if not registration.endpoints or not directories or len(set(directories)) != len(directories):
        raise KafkaError(
            ErrorCode.invalid_registration,
            f"broker {registration.broker} has no listener or no log directory, or a log directory twice",
        )
    known = image.brokers.get(registration.broker)
    if known is None or not in_session or known.incarnation == registration.incarnation:
        return
    if not set(known.directories) & set(directories):
        raise KafkaError(
            ErrorCode.duplicate_broker_registration,
            f"another process is registered as broker {registration.broker} and has a session; this one can register "
            "when that session has expired",
        )


def plan_broker_registration(
    image: MetadataImage, registration: RegisterBrokerRecord, previous_epoch: int, rules_of: TopicRulesLookup
) -> list[MetadataRecord]:
    """Registers the broker as fenced: it leads none of its partitions until it is unfenced. A
    replica leaves the ISR and the eligible leader replicas if it may have lost records.

    `previous_epoch`: the broker epoch of the previous incarnation if that lost no records, else −1.
    Returns no records for a request that was sent twice.
    """
    broker = registration.broker
    known = image.brokers.get(broker)
    if known is not None and _is_same_registration(known, registration):
        return []
    candidates = election_candidates(image).without(broker)
    has_all_records = known is not None and previous_epoch == known.epoch
    lacks_directory = known is not None and not set(known.directories) <= set(registration.directories)

    def next_state(state: PartitionRecord) -> PartitionRecord | None:
        rules = rules_of(state.topic)
        if _is_replica_lost(state, registration, lacks_directory):
            directory = registration.directories[0]
            return election.state_after_directory_loss(state, broker, directory, candidates, rules)
        if has_all_records and not _had_failed_directory(state, known, registration):
            return election.state_after_fencing(state, broker, candidates, rules)
        return election.state_after_unclean_shutdown(state, broker, candidates, rules)

    return [*_change_partitions(image, broker, next_state), registration]


def _is_same_registration(known: BrokerRegistration, new: RegisterBrokerRecord) -> bool:
    return (known.incarnation, known.endpoints, known.rack, known.directories, known.http, known.node) == (
        new.incarnation,
        new.endpoints,
        new.rack,
        new.directories,
        new.http,
        new.node,
    )


def _is_replica_lost(state: PartitionRecord, new: RegisterBrokerRecord, lacks_directory: bool) -> bool:
    """True if the replica's directory is missing in the registration. `lacks_directory`: whether
    any of the broker's directories is missing, which decides for a replica of an unknown directory.
    """
    directory = directory_of(state, new.broker)
    return lacks_directory if directory is None else directory not in new.directories


def _had_failed_directory(state: PartitionRecord, known: BrokerRegistration | None, new: RegisterBrokerRecord) -> bool:
    """True if the previous incarnation reported the replica's directory as failed, so that it may
    lack any record. For a replica of an unknown directory, True if it reported any as failed.
    """
    directory = directory_of(state, new.broker)
    working = () if known is None else known.directories
    return directory not in working if directory is not None else not set(new.directories) <= set(working)


def plan_fencing(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """Fences the broker: it leads no partition and leaves every ISR that has other members. No
    records when it is fenced already.
    """
    known = image.brokers.get(broker)
    if known is None or known.fenced:
        return []
    changed = _fence_replicas(image, broker, rules_of)
    return [*changed, BrokerRegistrationChangeRecord(broker, known.epoch, True, known.shutting_down)]


def plan_unfencing(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """Unfences the broker, which may then lead those of its partitions that have no leader. No
    records when it is unfenced already or shutting down.
    """
    known = image.brokers[broker]
    if not known.fenced or known.shutting_down:
        return []
    candidates = election_candidates(image)
    candidates = ElectionCandidates({**candidates.unfenced, broker: known.directories}, candidates.shutting_down)
    changed = _change_partitions(
        image, broker, lambda state: election.state_after_unfencing(state, candidates, rules_of(state.topic))
    )
    return [BrokerRegistrationChangeRecord(broker, known.epoch, False), *changed]


def plan_controlled_shutdown(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """Removes the broker from each ISR in which another replica may become leader, and elects such
    a replica where the broker led. Planned with each heartbeat of the broker until it may stop,
    because more replicas may have joined ISRs.
    """
    known = image.brokers[broker]
    candidates = election_candidates(image).with_shutting_down(broker)
    records: list[MetadataRecord] = []
    if not known.shutting_down:
        records.append(BrokerRegistrationChangeRecord(broker, known.epoch, known.fenced, shutting_down=True))

    def next_state(state: PartitionRecord) -> PartitionRecord | None:
        return election.state_after_shutdown_request(state, broker, candidates, rules_of(state.topic))

    return [*records, *_change_partitions(image, broker, next_state)]


def plan_directory_failure(
    image: MetadataImage, broker: int, offline: Collection[UUID], rules_of: TopicRulesLookup
) -> list[MetadataRecord]:
    """The replicas on failed directories leave the ISRs that have other members, and others are
    elected where they led. They may join ISRs again when the broker has registered again.
    """
    known = image.brokers[broker]
    working = tuple(directory for directory in known.directories if directory not in offline)
    if working == known.directories:
        return []
    candidates = election_candidates(image)
    if not known.fenced:
        candidates = ElectionCandidates({**candidates.unfenced, broker: working}, candidates.shutting_down)

    def next_state(state: PartitionRecord) -> PartitionRecord | None:
        if directory_of(state, broker) not in offline:
            return None
        return election.state_after_fencing(state, broker, candidates, rules_of(state.topic))

    change = BrokerRegistrationChangeRecord(broker, known.epoch, known.fenced, known.shutting_down, working)
    return [change, *_change_partitions(image, broker, next_state)]


def plan_unregistration(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[MetadataRecord]:
    """Unregisters the broker. Its replicas remain assigned to it until they are reassigned. Raises
    BROKER_ID_NOT_REGISTERED.
    """
    known = image.brokers.get(broker)
    if known is None:
        raise KafkaError(ErrorCode.broker_id_not_registered, f"no broker {broker} is registered")
    return [*_fence_replicas(image, broker, rules_of), UnregisterBrokerRecord(broker, known.epoch)]


def _fence_replicas(image: MetadataImage, broker: int, rules_of: TopicRulesLookup) -> list[PartitionRecord]:
    candidates = election_candidates(image).without(broker)
    return _change_partitions(
        image, broker, lambda state: election.state_after_fencing(state, broker, candidates, rules_of(state.topic))
    )


def _change_partitions(
    image: MetadataImage, broker: int, next_state: Callable[[PartitionRecord], PartitionRecord | None]
) -> list[PartitionRecord]:
    """The next states of the broker's partitions that change."""
    states = (next_state(state) for state in image.partitions_on_broker(broker))
    return [state for state in states if state is not None]
