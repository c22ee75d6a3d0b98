"""The active controller's part of mirroring: it synchronises topics, partitions, settings, groups,
access rules and users' credentials with each mirror's source.

The source is read every `metadata.max.age.ms`, and `sync_plan` decides what to change. Records are
not fetched here: the leaders of mirrored partitions do that (`mirror_fetchers`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_broker.config import (
    DEFAULT_REPLICATION_FACTOR,
    RESTRICTED_SUPER_USERS,
    SUPER_USERS,
    TOPIC_SETTINGS,
    Config,
    ConfigSource,
)
from ottla_broker.config.validation import check_topic_changes
from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MIRROR_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.mirroring.acl_sync import fetch_topic_acls, plan_acl_sync
from ottla_broker.mirroring.credential_sync import fetch_credentials, plan_credential_sync
from ottla_broker.mirroring.group_offsets import GroupOffsetSync
from ottla_broker.mirroring.mirror_config import MirrorConfig, mirror_configs
from ottla_broker.mirroring.source_cluster import (
    OriginReader,
    SourceTopic,
    describe_resources,
    fetch_mirrored_at_source,
    fetch_source_metadata,
)
from ottla_broker.mirroring.sync_plan import (
    AddPartitions,
    AddSource,
    AdoptTopic,
    AlterTopicConfig,
    CreateMirroredTopic,
    FailBackTopic,
    RecreateMirroredTopic,
    RejectedTopic,
    ResumeSource,
    SyncStep,
    TopicConfigs,
    UpdateOrigins,
    configs_to_sync,
    find_failback_candidates,
    is_mirrored,
    plan_appended,
    plan_identical,
    select_topics,
    target_topic_of,
)
from ottla_broker.mirroring.target_errors import TargetClusterError, as_target_errors
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

USERS: Final = "/users"
"""The key of warnings about users, which is no name of a topic."""
RETRY_PAUSE_S: Final = 2.0  # after a synchronisation failed


@dataclass(frozen=True, slots=True)
class MirrorProblems:
    """`source_error`: why the source could not be read in the last synchronisation; empty if it
    could. `target_error`: which error of this cluster ended it; empty if none did.

    `rejected_topics`: topic here → why it is not mirrored, or not changed.
    """

    source_error: str = ""
    target_error: str = ""
    rejected_topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncedTopics:
    """Name at the source → name here: `topics`, all that are copied; `identical`, those whose
    offsets are the source's in every partition.
    """

    topics: Mapping[str, str]
    identical: Mapping[str, str]


@dataclass(eq=False, repr=False)
class MirrorSynchronizer:
    """Runs on the broker that is the active controller, until it no longer is.

    `_target_client` creates a client of this cluster with a client id.
    """

    _controller: Controller
    _image: MetadataImage
    _config: Config
    _cluster_id: str
    _target_client: Callable[[str], Client]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    # The last warning of a mirror's topic, so that it is logged once.
    _logged: dict[tuple[str, str], str] = field(default_factory=dict)
    _problems: dict[str, MirrorProblems] = field(default_factory=dict)

    def problems(self, mirror: str) -> MirrorProblems:
        """Problems that the last synchronisation found."""
        return self._problems.get(mirror, MirrorProblems())

    def apply_changes(self, changes: MetadataDelta) -> None:
        if changes.changed_mirrored_topics or any(kind == MIRROR_RESOURCE for kind, _ in changes.changed_configs):
            self._changed.set()

    async def run(self) -> None:
        """Synchronises every mirror that replicates, until cancelled."""
        running: dict[MirrorConfig, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                wanted = [mirror for mirror in mirror_configs(self._image).values() if mirror.is_replicating]
                for mirror in [mirror for mirror in running if mirror not in wanted]:
                    running.pop(mirror).cancel()
                    self._problems.pop(mirror.name, None)
                for mirror in wanted:
                    if mirror not in running:
                        running[mirror] = tasks.create_task(self._sync_mirror(mirror), name=f"mirror {mirror.name}")
                await self._changed.wait()

    async def _sync_mirror(self, mirror: MirrorConfig) -> None:
        client_id = f"mirror-{mirror.name}-controller"
        source, target = mirror.source_client(client_id), self._target_client(client_id)
        groups, origins = GroupOffsetSync(mirror.groups, source, target), OriginReader(source)
        try:
            while True:
                try:
                    synced = await self._sync_topics(mirror, source, origins)
                    if mirror.groups and synced.identical:
                        await groups.sync_groups(synced.identical)
                    if mirror.sync_acls:
                        await self._sync_acls(mirror, source, synced.topics)
                    if mirror.users:
                        await self._sync_credentials(mirror, source)
                    self._log_warning(mirror, "", "")
                    pause_s = mirror.metadata_max_age_s
                except TargetClusterError as reason:
                    self._set_error(mirror, target_error=f"the target cluster: {reason}")
                    pause_s = min(mirror.metadata_max_age_s, RETRY_PAUSE_S)
                except (KafkaError, OSError, TimeoutError) as reason:
                    error = f"the source at {mirror.bootstrap_servers}: {reason or 'no response in time'}"
                    self._set_error(mirror, source_error=error)
                    pause_s = min(mirror.metadata_max_age_s, RETRY_PAUSE_S)
                await asyncio.sleep(pause_s)
        finally:
            await source.close()
            await target.close()

    async def _sync_acls(self, mirror: MirrorConfig, source: Client, topics: Mapping[str, str]) -> None:
        if changes := plan_acl_sync(mirror.name, await fetch_topic_acls(source), self._image.acls, topics):
            with as_target_errors():
                await self._controller.sync_acls(changes.to_create, changes.to_delete)
            logger.info(
                "mirror %s: created %d access rules of the source's topics, removed %d that the source no longer has",
                mirror.name,
                len(changes.to_create),
                len(changes.to_delete),
            )

    async def _sync_credentials(self, mirror: MirrorConfig, source: Client) -> None:
        at_source = await fetch_credentials(source, mirror.users)
        here, owners = self._image.scram_credentials, self._image.mirrored_credentials
        super_users = {*self._config(SUPER_USERS), *self._config(RESTRICTED_SUPER_USERS)}
        changes = plan_credential_sync(mirror.name, mirror.users, at_source, here, owners, super_users)
        if changes:
            with as_target_errors():
                await self._controller.sync_credentials(mirror.name, changes.to_set, changes.to_remove)
            logger.info(
                "mirror %s: copied %d credentials of the source's users, removed %d that the source no longer has",
                mirror.name,
                len(changes.to_set),
                len(changes.to_remove),
            )
        skipped = ", ".join(sorted(changes.skipped))
        reason = ""
        if skipped:
            reason = f"credentials of {skipped} are not copied: the users are super users or have credentials here"
        self._log_warning(mirror, USERS, reason)

    async def _sync_topics(self, mirror: MirrorConfig, client: Client, origins: OriginReader) -> SyncedTopics:
        """Changes topics, partitions and settings here to the source's, and returns the topics
        that are copied. Raises KafkaError, OSError, TimeoutError and, for errors of this cluster,
        TargetClusterError.
        """
        source = await fetch_source_metadata(client, None)
        if source.cluster_id == self._cluster_id:
            raise KafkaError(ErrorCode.invalid_config, "the mirror's source is this cluster itself")
        topics = select_topics(self._image, mirror, source)
        names = [topic.name for topic in topics]
        source = await origins.add_origins(source, names)
        configs = await self._read_topic_configs(client, names) if mirror.sync_configs else None
        inputs = self._image, mirror, source, configs, self._config(DEFAULT_REPLICATION_FACTOR), self._cluster_id
        if mirror.appends_records:
            self._update_rejected(mirror, await self._apply_steps(mirror, plan_appended(*inputs)))
            return SyncedTopics(self._copied_topics(mirror, topics), {})
        at_source = await fetch_mirrored_at_source(client, find_failback_candidates(self._image, mirror, topics))
        self._update_rejected(mirror, await self._apply_steps(mirror, plan_identical(*inputs, at_source)))
        identical = {it.name: mirror.target_topic(it.name) for it in topics if is_mirrored(self._image, mirror, it)}
        return SyncedTopics(self._copied_topics(mirror, topics), identical)

    def _copied_topics(self, mirror: MirrorConfig, topics: Sequence[SourceTopic]) -> dict[str, str]:
        rejected = self.problems(mirror.name).rejected_topics
        named = {it.name: mirror.target_topic(it.name) for it in topics}
        return {name: here for name, here in named.items() if here in self._image.topics and here not in rejected}

    async def _apply_steps(self, mirror: MirrorConfig, steps: Iterator[SyncStep]) -> dict[str, str]:
        """Applies a plan; topics are created together, in one commit.

        Returns the rejected topics, each with its reason. Raises TargetClusterError.
        """
        rejected: dict[str, str] = {}
        created: list[CreateMirroredTopic] = []
        for step in steps:
            if isinstance(step, CreateMirroredTopic):
                created.append(step)
                continue
            try:
                if isinstance(step, RejectedTopic):
                    rejected[step.topic] = step.reason
                else:
                    await self._apply_step(mirror, step)
            except KafkaError as reason:  # the other topics are synchronised all the same
                rejected[target_topic_of(step)] = reason.message or reason.code.name
        if created:
            with as_target_errors():
                results = await self._controller.mirror_control.create_mirrored_topics([it.topic for it in created])
            for step, result in zip(created, results, strict=True):
                if isinstance(result, KafkaError):
                    rejected[step.topic.name] = result.message or result.code.name
                else:
                    logger.info("mirror %s: mirroring topic %r from now on", mirror.name, step.topic.name)
        return rejected

    async def _apply_step(self, mirror: MirrorConfig, step: SyncStep) -> None:
        control = self._controller.mirror_control
        match step:
            case RecreateMirroredTopic(topic, old_id):
                reason = "the source's log has diverged; deleting the topic and creating it again from the source"
                self._log_warning(mirror, topic.name, reason)
                await control.recreate_mirrored_topic(topic, old_id)
            case AdoptTopic(topic, topic_id):
                await control.adopt_topic(topic, topic_id)
                reason = "failing back from the cluster that mirrored the topic; the topic accepts no other records now"
                self._log_warning(mirror, topic.name, reason)
            case FailBackTopic(topic, topic_id):
                await control.fail_back(topic, topic_id)
                reason = "the failover is reverted; the topic accepts only the source's records now"
                self._log_warning(mirror, topic.name, reason)
            case AddPartitions(name, count):
                await self._controller.create_partitions(name, count)
            case AlterTopicConfig(name, changes):
                await self._controller.alter_configs(TOPIC_RESOURCE, name, changes)
            case UpdateOrigins(_, topic_id, origins, sources):
                await control.update_origins(topic_id, origins, sources)
            case AddSource(source):
                await control.add_source(source)
                logger.info(
                    "mirror %s: appending %r of the source to %r", mirror.name, source.source_topic, source.name
                )
            case ResumeSource(_, topic_id, source_id):
                await control.resume_source(topic_id, source_id)

    def _set_error(self, mirror: MirrorConfig, *, source_error: str = "", target_error: str = "") -> None:
        self._log_warning(mirror, "", source_error or target_error)
        before = self.problems(mirror.name)
        self._problems[mirror.name] = replace(before, source_error=source_error, target_error=target_error)

    def _update_rejected(self, mirror: MirrorConfig, rejected: dict[str, str]) -> None:
        for topic in self.problems(mirror.name).rejected_topics.keys() - rejected.keys():
            self._logged.pop((mirror.name, topic), None)
        for topic, reason in rejected.items():
            self._log_warning(mirror, topic, reason)
        self._problems[mirror.name] = MirrorProblems(rejected_topics=rejected)

    def _log_warning(self, mirror: MirrorConfig, topic: str, reason: str) -> None:
        """Logs a reason when it changes.

        `topic` is empty for the mirror itself, and USERS for its users; an empty reason ends a
        problem.
        """
        if self._logged.get((mirror.name, topic), "") != reason:
            self._logged[mirror.name, topic] = reason
            if reason:
                is_about_topic = topic and topic != USERS
                logger.warning("mirror %s: %s%s", mirror.name, f"topic {topic!r}: " if is_about_topic else "", reason)

    async def _read_topic_configs(self, client: Client, names: Sequence[str]) -> TopicConfigs:
        """Settings that are set for topics at the source and valid here."""
        found: dict[str, dict[str, str]] = {}
        async for result in describe_resources(client, TOPIC_RESOURCE, names, tuple(TOPIC_SETTINGS)):
            raise_for_error(result.error_code, f"settings of topic {result.resource_name!r}: {result.error_message}")
            found[result.resource_name] = self._valid_settings(
                {
                    entry.name: entry.value
                    for entry in result.configs
                    if int(entry.config_source) == ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
                }
            )
        return found

    def _valid_settings(self, settings: dict[str, str]) -> dict[str, str]:
        valid = {}
        for name, value in configs_to_sync(settings).items():
            try:
                check_topic_changes({name: value})
                valid[name] = value
            except KafkaError as reason:
                logger.debug("skipping a setting of the source: %s", reason)
        return valid
