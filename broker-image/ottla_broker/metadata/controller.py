"""The active controller: plans and commits every change of the cluster's metadata, one at a time
(`MetadataWriter`).

`cluster_control` is for brokers, `replication_control` for partitions, `mirror_control` for mirrors
and `delegation_token_control` for delegation tokens. All else is here: topics, access control
entries, SCRAM credentials, client quotas, features, configs and producer ids.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from ottla_broker.config import (
    AUTO_LEADER_REBALANCE_ENABLE,
    BROKER_SESSION_TIMEOUT_MS,
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    DELEGATION_TOKEN_SECRET_KEY,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    Config,
)
from ottla_broker.metadata import election
from ottla_broker.metadata.cluster_control import ClusterControl
from ottla_broker.metadata.config_plans import plan_config_change
from ottla_broker.metadata.delegation_token_control import DelegationTokenControl
from ottla_broker.metadata.election import TopicElectionRules
from ottla_broker.metadata.failure_detector import FailedBroker, FailureDetector
from ottla_broker.metadata.features import FeatureUpdate, plan_feature_updates
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_writer import Decision, MetadataWriter
from ottla_broker.metadata.mirror_control import MirrorControl
from ottla_broker.metadata.quorum import CommitLog, leadership_timeout_s
from ottla_broker.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla_broker.metadata.replication_control import ReplicationControl
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner, plan_partition_growth, plan_topic_deletion
from ottla_broker.runtime import Runtime
from ottla_broker.security.acls import AccessControlEntry, AclFilter
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.security.scram import ScramCredential
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_IDS_PER_CLUSTER = 1 << 40  # which leaves some four million ranges to choose from
T = TypeVar("T")


class Controller:
    """Methods raise KafkaError with the error code for the client, NOT_CONTROLLER when another
    broker was elected meanwhile. With `validate_only` nothing is committed. `failure_detector`:
    with None, failed brokers are fenced only when their sessions expire.
    """

    def __init__(
        self,
        image: MetadataImage,
        quorum: CommitLog,
        runtime: Runtime,
        config: Config,
        broker_id: int,
        failure_detector: FailureDetector | None = None,
    ) -> None:
        self._image = image
        self._runtime = runtime
        self._config = config
        self._broker_id = broker_id
        self._writer = MetadataWriter(image, quorum, config)
        session_timeout_s = config(BROKER_SESSION_TIMEOUT_MS) / 1000
        self.cluster_control = ClusterControl(self._writer, session_timeout_s, leadership_timeout_s(config))
        self.replication_control = ReplicationControl(self._writer)
        self.mirror_control = MirrorControl(self._writer, runtime, self.cluster_control.wait_until_all_heard)
        self.delegation_tokens = DelegationTokenControl(image, self._writer, runtime, config)
        self._failure_detector = failure_detector or FailureDetector(broker_id, image, config.inter_broker_listener)
        self._failed_brokers: asyncio.Queue[FailedBroker] = asyncio.Queue()

    async def run(self) -> None:
        """Runs background work until cancelled. First fences the previous controller, which has
        failed, is partitioned or has resigned.
        """
        callback = self._failure_detector.on_broker_failed = self._failed_brokers.put_nowait
        try:
            previous = self._image.brokers.get(self._image.previous_controller_id)
            if previous is not None and previous.id != self._broker_id:
                fencing = self.cluster_control.fence_broker(
                    previous.id, previous.epoch, "another controller was elected"
                )
                await run_and_log_failure(fencing)
            await run_and_log_failure(self.replication_control.clear_unneeded_eligible_replicas())
            for failed in self._failure_detector.failed_brokers():
                self._failed_brokers.put_nowait(failed)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fence_failed_brokers())
                tasks.create_task(self._fence_expired_sessions())
                tasks.create_task(self._restore_preferred_leaders())
                tasks.create_task(self._remove_expired_tokens())
        finally:
            # A later controller of this broker may have set its own.
            if self._failure_detector.on_broker_failed is callback:
                self._failure_detector.on_broker_failed = None

    async def _fence_failed_brokers(self) -> None:
        while True:
            await run_and_log_failure(self.cluster_control.fence_broker(*await self._failed_brokers.get()))

    async def _fence_expired_sessions(self) -> None:
        while True:
            await asyncio.sleep(self.cluster_control.heartbeats.check_interval_s)
            await run_and_log_failure(self.cluster_control.fence_expired_sessions())

    async def _restore_preferred_leaders(self) -> None:
        while True:
            await asyncio.sleep(self._config(LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS))
            if self._config(AUTO_LEADER_REBALANCE_ENABLE):
                changed = await run_and_log_failure(self.replication_control.restore_preferred_leaders())
                if changed:
                    logger.info("restored the preferred leaders of %d partitions", changed)

    async def _remove_expired_tokens(self) -> None:
        while self._config(DELEGATION_TOKEN_SECRET_KEY) is not None:
            await asyncio.sleep(self._config(DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS) / 1000)
            await run_and_log_failure(self.delegation_tokens.remove_expired_tokens())

    # --- topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        charge: Callable[[int], None] = lambda partitions: None,
    ) -> list[UUID | KafkaError]:
        """Creates topics in one commit. Returns for each topic, in their order, its id or error.
        `charge`: called with the number of partitions of each valid topic. If it raises KafkaError,
        the topic is not created.
        """

        def plan() -> Decision[list[UUID | KafkaError]]:
            planner, records, results = TopicPlanner(self._image), list[MetadataRecord](), list[UUID | KafkaError]()
            for topic in topics:
                topic_id = self._runtime.new_uuid()
                try:
                    created = planner.plan_creation(topic, topic_id)
                    charge(sum(isinstance(record, PartitionRecord) for record in created))
                    records += _with_initial_eligible_replicas(created, self._writer.rules_for_config(topic.config))
                    results.append(topic_id)
                except KafkaError as reason:
                    results.append(reason)
            return [] if validate_only else records, results

        await self.cluster_control.wait_until_all_heard()
        return await self._writer.execute(plan)

    async def create_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Grows a topic to `count` partitions. `assignment`: replicas of each new partition; None:
        they are placed as those of a new topic.
        """

        def plan() -> list[MetadataRecord]:
            rules = self._writer.rules_for_config(self._image.topic_config(name))
            return _with_initial_eligible_replicas(plan_partition_growth(self._image, name, count, assignment), rules)

        await self.cluster_control.wait_until_all_heard()
        await self._writer.apply_plan(plan, validate_only=validate_only)

    async def delete_topic(self, name: str) -> None:
        await self._writer.apply_plan(lambda: plan_topic_deletion(self._image, name))

    # --- access control entries

    async def create_acls(self, entries: Sequence[AccessControlEntry]) -> None:
        """Creates access control entries in one commit. An existing entry is not created again."""

        def plan() -> list[MetadataRecord]:
            existing = set(self._image.acls.values())
            created = [entry for entry in dict.fromkeys(entries) if entry not in existing]
            return [AccessControlEntryRecord(self._runtime.new_uuid(), entry) for entry in created]

        await self._writer.apply_plan(plan)

    async def sync_acls(self, to_create: Mapping[UUID, AccessControlEntry], to_delete: Collection[UUID]) -> None:
        """Creates entries with these ids and deletes others, in one commit. An existing entry is
        not created again, and an unknown id is ignored.
        """

        def plan() -> list[MetadataRecord]:
            existing = set(self._image.acls.values())
            return [
                *(RemoveAccessControlEntryRecord(it) for it in to_delete if it in self._image.acls),
                *(AccessControlEntryRecord(id_, it) for id_, it in to_create.items() if it not in existing),
            ]

        await self._writer.apply_plan(plan)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[AccessControlEntry]]:
        """Deletes access control entries in one commit. Returns the entries that each filter
        selects.
        """

        def plan() -> Decision[list[list[AccessControlEntry]]]:
            selected = [
                {entry_id: entry for entry_id, entry in self._image.acls.items() if one.selects(entry)}
                for one in filters
            ]
            removed = {entry_id: None for found in selected for entry_id in found}
            records = [RemoveAccessControlEntryRecord(entry_id) for entry_id in removed]
            return records, [list(found.values()) for found in selected]

        return await self._writer.execute(plan)

    # --- SCRAM credentials

    async def alter_scram_credentials(
        self, changes: Mapping[str, Mapping[int, ScramCredential | None]]
    ) -> dict[str, KafkaError | None]:
        """Changes credentials of users by mechanism, in one commit; None removes a credential.
        Returns None for each user, or RESOURCE_NOT_FOUND when there is no credential to remove;
        then nothing of that user is changed.
        """

        def plan() -> Decision[dict[str, KafkaError | None]]:
            records, outcomes = list[MetadataRecord](), dict[str, KafkaError | None]()
            for user, credentials in changes.items():
                removed = [mechanism for mechanism, credential in credentials.items() if credential is None]
                if any((user, mechanism) not in self._image.scram_credentials for mechanism in removed):
                    outcomes[user] = KafkaError(
                        ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
                    )
                    continue
                outcomes[user] = None
                records += [
                    RemoveUserScramCredentialRecord(user, mechanism)
                    if credential is None
                    else UserScramCredentialRecord(user, mechanism, credential)
                    for mechanism, credential in credentials.items()
                ]
            return records, outcomes

        return await self._writer.execute(plan)

    async def sync_credentials(
        self, mirror: str, to_set: Mapping[tuple[str, int], ScramCredential], to_remove: Collection[tuple[str, int]]
    ) -> None:
        """Sets and removes credentials by user and mechanism, in one commit. A credential that
        exists is left as it is unless this mirror has copied it.
        """

        def plan() -> list[MetadataRecord]:
            existing, owners = self._image.scram_credentials, self._image.mirrored_credentials
            return [
                *(
                    UserScramCredentialRecord(*key, credential, mirror)
                    for key, credential in to_set.items()
                    if key not in existing or owners.get(key) == mirror
                ),
                *(RemoveUserScramCredentialRecord(*key) for key in to_remove if owners.get(key) == mirror),
            ]

        await self._writer.apply_plan(plan)

    # --- client quotas

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Sets the quotas of entities, by the quota's key, in one commit; None removes a quota. The
        caller has validated them.
        """

        def plan() -> list[MetadataRecord]:
            return [
                ClientQuotaRecord(entity, key, value)
                for entity, quotas in changes.items()
                for key, value in quotas.items()
                if self._image.client_quotas.get(entity, {}).get(key) != value
            ]

        await self._writer.apply_plan(plan, validate_only=validate_only)

    # --- features

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Changes the finalized levels of all these features, or of none. Raises
        INVALID_UPDATE_VERSION.
        """
        await self._writer.apply_plan(
            lambda: plan_feature_updates(self._image.feature_levels, updates), validate_only=validate_only
        )

    # --- configs and producer ids

    async def alter_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets configs of one resource, by key; None removes a config. The caller has validated
        the values. `resource_type`: one of `image.…_RESOURCE`.
        """
        await self._writer.apply_plan(
            lambda: plan_config_change(self._image, resource_type, name, changes, self._writer.rules_for_config),
            validate_only=validate_only,
        )

    async def allocate_producer_ids(self) -> range:
        """Allocates a block of ids that no other broker gets. The first block of a cluster is
        random, so that its ids also differ from those of clusters whose records are mirrored here
        (Kafka's start at 0).
        """

        def plan() -> Decision[range]:
            random_start = (self._runtime.random.getrandbits(22) or 1) * PRODUCER_IDS_PER_CLUSTER
            first = self._image.next_producer_id or random_start
            return [ProducerIdsRecord(first + PRODUCER_ID_BLOCK_SIZE)], range(first, first + PRODUCER_ID_BLOCK_SIZE)

        return await self._writer.execute(plan)

    async def adopt_topics(self, broker: int, topics: Mapping[str, tuple[UUID, Mapping[int, int]]]) -> None:
        """Adds the topics of partition folders that were found at a broker's first start: name →
        (topic id, partition → latest leader epoch). The leader epoch is raised above the folder's,
        so that clients see a new leader."""

        def plan() -> list[MetadataRecord]:
            records: list[MetadataRecord] = []
            for name, (topic_id, partitions) in sorted(topics.items()):
                records.append(TopicRecord(name, topic_id))
                records += [
                    PartitionRecord(
                        topic_id, partition, replicas=(broker,), isr=(broker,), leader=broker, leader_epoch=epoch + 1
                    )
                    for partition, epoch in sorted(partitions.items())
                ]
            return records

        await self._writer.apply_plan(plan)


def _with_initial_eligible_replicas(
    records: Sequence[MetadataRecord], rules: TopicElectionRules
) -> list[MetadataRecord]:
    return [
        election.with_initial_eligible_replicas(record, rules) if isinstance(record, PartitionRecord) else record
        for record in records
    ]


async def run_and_log_failure(work: Awaitable[T]) -> T | None:
    """Awaits background work and logs its failure. The result, or None after a failure: the work is
    repeated at its next interval, or by the next controller.
    """
    try:
        return await work
    except KafkaError as reason:
        logger.warning("background work of the controller failed: %s", reason)
        return None
