"""One look at a Cluster: what there is, what there should be, the next step between them, and what is told of it.

A look decides from what it sees and remembers nothing that matters, so that an operator that is killed anywhere is followed by one that goes on.
"""

import asyncio
import datetime
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_operator.kafka import cluster as asking
from ottla_operator.kafka import reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kube import rolling, scaling
from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.checked import Checked
from ottla_operator.kube.children import Children, Leaving, Seen, Taken
from ottla_operator.kube.cluster_brokers import addresses, brokers_at
from ottla_operator.kube.cluster_status import Broker, Told, status_of
from ottla_operator.kube.known import Key
from ottla_operator.kube.patience import Patience
from ottla_operator.kube.secrets import secrets_in
from ottla_operator.kube.telling import Telling
from ottla_operator.kube.upkeep import Upkeep, refuses
from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.broker_processes import broker_count_for_defaults
from ottla_operator.plan.cluster_verdict import NO_CERTIFICATE, Facts, serving, verdict
from ottla_operator.plan.conditions import Conditions, Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.access import disruption_budget
from ottla_operator.plan.objects.addresses import bootstrap_addresses
from ottla_operator.plan.objects.desired import (
    DesiredObjects,
    ObjectInputs,
    broker_ids,
    desired_objects,
    find_unsupported,
)
from ottla_operator.plan.objects.pods import BrokerImages, pod_hash
from ottla_operator.plan.objects.settings import COMMON_FILE, common_settings, parse_properties, started_with
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.model import Json

RESYNC_S: Final = 15.0
SOON_S: Final = 0.5
WAITING_S: Final = 2.0
BACK_WITHIN: Final = "10m"
BROKERS_WITHIN_S: Final = 10.0


@dataclass(slots=True)
class Memory:
    """What need not be found out again. `refused`: settings that running brokers did not take, with their values."""

    refused: dict[str, str] = field(default_factory=dict)
    verdict: str = ""
    patience: Patience = field(default_factory=Patience)


@dataclass(slots=True)
class Clusters:
    """`body`: the Cluster as it was last seen, None when it is gone. `topics_may_go_on`: called when its brokers have become reachable."""

    api: Api
    telling: Telling
    images: BrokerImages
    body: Callable[[Key], Json | None]
    topics_may_go_on: Callable[[Key], None] = lambda key: None
    _memories: dict[Key, Memory] = field(default_factory=dict)
    _checked: Checked = field(default_factory=lambda: Checked(lambda body: find_unsupported(cluster_of(body))))
    _children: Children = field(init=False)
    _upkeep: Upkeep = field(init=False)

    def __post_init__(self) -> None:
        self._children = Children(self.api)
        self._upkeep = Upkeep(self.api)

    async def look(self, key: Key) -> float | None:
        body = self.body(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._memories.pop(key, None)
            self._checked.forget(key)
            return None  # what it owns goes by Kubernetes' own means
        memory = self._memories.setdefault(key, Memory())
        if why := self._checked.wrong(key, body):
            await self._tell(body, memory, Stalled("InvalidSpec", why))
            return RESYNC_S
        return await self._keep(key, body, cluster_of(body), memory)

    async def failed(self, key: Key, error: Exception) -> None:
        """Brokers or the API server did not do what they should: it is tried again."""
        if (body := self.body(key)) is not None:
            await self._tell(body, self._memories.setdefault(key, Memory()), Reconciling("TryingAgain", str(error)))

    async def _keep(self, key: Key, body: Json, cluster: Cluster, memory: Memory) -> float:
        seen = await self._children.see(cluster)
        live = seen.stateful_set
        if live and "deletionTimestamp" in live["metadata"]:
            await self._tell(
                body, memory, Reconciling("Waiting", "the StatefulSet is being deleted; then it is made anew")
            )
            return SOON_S
        try:
            return await self._kept(key, body, cluster, memory, seen)
        except Taken as error:
            await self._tell(body, memory, Stalled("NameTaken", str(error)))
            return RESYNC_S
        except Leaving as error:
            await self._tell(body, memory, Reconciling("Waiting", str(error)))
            return WAITING_S
        except ApiError as error:
            if not refuses(error):
                raise
            await self._tell(body, memory, Stalled("Refused", f"the API server refuses a change: {error}"))
            return RESYNC_S

    async def _kept(self, key: Key, body: Json, cluster: Cluster, memory: Memory, seen: Seen) -> float:
        """Taken, Leaving, ApiError."""
        live = seen.stateful_set
        # An operator that was killed while disks grew leaves pods whose StatefulSet is gone.
        there = live["spec"]["replicas"] if live else max(seen.pods, default=0)
        brokers = max(there, cluster.spec.replicas)
        digest, unusable = await self._certificates(cluster, seen)
        if unusable and digest is None:
            await self._tell(body, memory, Stalled(NO_CERTIFICATE, unusable))
            return WAITING_S
        wanted = await self._bring(body, cluster, memory, seen, brokers, digest or "")
        if wanted.waiting_for_services:
            await self._tell(
                body,
                memory,
                Reconciling(
                    "WaitingForAddress", f"Service {', '.join(wanted.waiting_for_services)} has no address yet"
                ),
            )
            return WAITING_S
        async with brokers_at(addresses(cluster, seen.pods.values()), BROKERS_WITHIN_S) as asked:
            look = _Look(seen, wanted, brokers, asked.link, asked.why, digest or "", unusable)
            return await self._with_brokers(key, body, cluster, memory, look)

    async def _certificates(self, cluster: Cluster, seen: Seen) -> tuple[str | None, str]:
        """The digest of those that brokers should have, empty without TLS; and why those in the Secret cannot be used. Then the digest is that of what was
        there before; None: nothing was, and no broker could be started."""
        before = certificates_of(seen.stateful_set)
        try:
            secrets = await secrets_in(self.api, cluster.metadata.namespace, filter(None, [tls.secret_name(cluster)]))
            found = tls.read_certificates(cluster, secrets)
            if found is None:
                return "", ""
            tls.check_certificates(found, time.time() if found.digest != before else None)
        except SecretUnusable as error:
            return before, str(error)
        return found.digest, ""

    async def _bring(
        self, body: Json, cluster: Cluster, memory: Memory, seen: Seen, brokers: int, certificates: str
    ) -> DesiredObjects:
        """Everything but the pods themselves; what is wanted now."""
        count = broker_count_for_defaults(brokers, scaling.spread_over(seen.notes))
        common = _without_refused(common_settings(cluster, count), memory, seen)
        in_use = frozenset(it.port for it in seen.pods.values() if it.port)
        given = ObjectInputs(brokers, seen.addresses(), seen.notes, common, certificates, in_use)
        wanted = desired_objects(cluster, self.images, given)
        await self._children.ensure_all(wanted.prerequisites, seen)
        wanted = desired_objects(cluster, self.images, replace(given, addresses=seen.addresses()))
        if wanted.settings is None or wanted.stateful_set is None:
            return wanted
        await self._children.ensure_all([wanted.settings], seen)
        if await self._upkeep.grow_disks(cluster, seen):
            await self.telling.event(
                body, "StorageGrows", f"the brokers' disks grow to {cluster.spec.storage and cluster.spec.storage.size}"
            )
            seen.stateful_set = None
        seen.stateful_set = await self._children.ensure(wanted.stateful_set, seen.stateful_set)
        for node in await self._upkeep.write_racks(cluster, seen):
            label = cluster.spec.rack.topology_key if cluster.spec.rack else ""
            await self.telling.event(body, "NoRack", f"node {node} has no label {label}", warning=True)
        return wanted

    async def _with_brokers(self, key: Key, body: Json, cluster: Cluster, memory: Memory, look: "_Look") -> float:
        seen, wanted, link = look.seen, look.wanted, look.link
        assert wanted.settings is not None and wanted.stateful_set is not None
        described = await asking.describe_cluster(link) if link else None
        up = frozenset(it.id for it in described.brokers) if described else frozenset[int]()
        wished = rolling.Wished(
            {id_: started_with(wanted.settings, id_) for id_ in broker_ids(cluster.spec.replicas)},
            pod_hash(wanted.stateful_set["spec"]["template"]),
            self.images.of(cluster),
            look.certificates,
            tls.secret_name(cluster),
        )
        rolled = await rolling.change_running(link, seen, wished)
        for setting in rolled.refused:
            memory.refused[setting] = wished.settings[names.FIRST_BROKER][setting]
        for setting, value in rolled.put.items():
            await self.telling.event(body, "SettingChanged", f"{setting}={value}, without a restart")
        controller = described.controller if described and described.controller >= 0 else None
        notes = (
            {**seen.notes, names.CLUSTER_SETTINGS: _json(rolled.ours)}
            if rolled.ours
            else {key_: it for key_, it in seen.notes.items() if key_ != names.CLUSTER_SETTINGS}
        )
        # Without certificates none would come back.
        if not look.unusable and (
            said := await rolling.restart_next(self.api, cluster, link, seen, up, controller, rolled)
        ):
            await self.telling.event(body, "Restarting", said)
        scaled = scaling.Scaled(look.brokers, notes)
        away = [
            it
            for it in broker_ids(cluster.spec.replicas)
            if it not in up or not (pod := seen.pods.get(it)) or not pod.is_ready
        ]
        if link and not rolled.outdated and not away and not scaling.settled(cluster, look.brokers, notes):
            seen_with_notes = replace(seen, stateful_set=_noted(seen.stateful_set, notes))
            scaled = await scaling.step(
                link, cluster, seen_with_notes, look.brokers, wished.settings[names.FIRST_BROKER]
            )
        if link:  # also while others are to be restarted: as long as it counts for the metadata log, fewer of them can be spared
            gone = await scaling.forget_gone(link, seen, scaled.brokers)
            for broker in gone.forgotten:
                await self.telling.event(body, "BrokerForgotten", f"broker {broker} is stopped and forgotten")
            for broker in gone.holding:
                scaled.brokers = max(scaled.brokers, broker)
                scaled.said.append(
                    f"broker {broker} was given replicas while it was let go: it comes back until they are off it"
                )
        for said in scaled.said:
            await self.telling.event(body, "Scaling", said)
        await self._note_down(cluster, look, scaled)
        await self._upkeep.take_away(cluster, seen, wanted)
        moving = await reassignments.list_reassignments(link) if link else None
        ailing = asking.find_partition_problems(await topics.list_topics(link), moving) if link else None
        facts = Facts(
            wanted=cluster.spec.replicas,
            pods=seen.pods,
            up=up,
            late=_late(cluster, seen, rolled),
            outdated=rolled.outdated,
            blocked_by=rolled.blocked_by,
            refused=_refusals(memory, rolled),
            scaling=scaled.doing,
            cannot_scale=scaled.refused,
            leaderless=None if ailing is None else sum(it.kind == asking.OFFLINE for it in ailing),
            under_replicated=None if ailing is None else len(ailing),
            moving=len(moving or ()),
            unreached=look.unreached,
            no_certificates=look.unusable,
        )
        await self._children.ensure_all([disruption_budget(cluster, evictable=facts.can_spare_one)], seen)
        judged = verdict(facts)
        told = Told(
            cluster_id=described.id if described else None,
            controller=controller,
            moving=None if moving is None else len(moving),
            begun=scaled.begun,
            bootstrap=look.wanted_bootstrap(cluster),
            version=self.images.of(cluster).rpartition(":")[2],
            brokers=tuple(
                Broker(
                    it.broker, it.broker in facts.serving, it.image.rpartition(":")[2], it.settings.rpartition("-")[2]
                )
                for it in sorted(seen.pods.values(), key=lambda it: it.broker)
            ),
        )
        await self._tell(body, memory, judged, facts, status_of(cluster, facts, told, rolled, body.get("status") or {}))
        if facts.serving:
            self.topics_may_go_on(key)
        if isinstance(judged, Ready):
            return RESYNC_S
        soon_s = SOON_S if rolled.restarted is not None or rolled.outdated or scaled.doing else WAITING_S
        return memory.patience.pause(judged, asyncio.get_running_loop().time(), soon_s, RESYNC_S)

    async def _note_down(self, cluster: Cluster, look: "_Look", scaled: scaling.Scaled) -> None:
        """Notes and the number of pods, where they are others now."""
        if scaled.brokers == look.brokers and scaled.notes == look.seen.notes:
            return
        given = ObjectInputs(scaled.brokers, look.seen.addresses(), scaled.notes, look.common, look.certificates)
        wanted = desired_objects(cluster, self.images, given)
        assert wanted.stateful_set is not None and wanted.settings is not None
        await self._children.ensure_all([wanted.settings], look.seen)
        look.seen.stateful_set = await self._children.ensure(wanted.stateful_set, look.seen.stateful_set)

    async def _tell(
        self,
        body: Json,
        memory: Memory,
        judged: Readiness,
        facts: Facts | None = None,
        more: Mapping[str, Json] | None = None,
    ) -> None:
        before = body.get("status") or {}
        kept = {key: value for key, value in before.items() if key not in ("conditions", "observedGeneration")}
        aspects = [serving(facts)] if facts else ()
        told = Conditions(judged, body["metadata"]["generation"], aspects)
        await self.telling.status(body, told, kept if more is None else more)
        if isinstance(judged, Stalled) and memory.verdict != judged.message:
            await self.telling.event(body, judged.reason, judged.message, warning=True)
        elif isinstance(judged, Ready) and memory.verdict and memory.verdict != judged.message:
            await self.telling.event(body, judged.reason, judged.message)
        memory.verdict = judged.message


@dataclass(slots=True)
class _Look:
    seen: Seen
    wanted: DesiredObjects
    brokers: int
    link: KafkaClient | None
    unreached: str
    certificates: str
    unusable: str

    @property
    def common(self) -> dict[str, str]:
        assert self.wanted.settings is not None
        return parse_properties(self.wanted.settings["data"][COMMON_FILE])

    def wanted_bootstrap(self, cluster: Cluster) -> dict[str, str]:
        return bootstrap_addresses(cluster, self.seen.addresses())


def cluster_of(body: Json) -> Cluster:
    return Cluster.parse({key: body[key] for key in ("apiVersion", "kind", "metadata", "spec")})


def certificates_of(stateful_set: Json | None) -> str | None:
    """The digest of the certificates that its pods are made with; None without."""
    if stateful_set is None:
        return None
    found: str | None = (stateful_set["spec"]["template"]["metadata"].get("annotations") or {}).get(names.CERTIFICATES)
    return found


def _without_refused(common: dict[str, str], memory: Memory, seen: Seen) -> dict[str, str]:
    """A value that running brokers have refused would stop one that is started with it: what they were started with stays."""
    memory.refused = {key: value for key, value in memory.refused.items() if common.get(key) == value}
    if not memory.refused:
        return common
    before = next((it for it in rolling.started(seen).values() if it is not None), {})
    kept = {key: value for key, value in common.items() if key not in memory.refused}
    return {**kept, **{key: before[key] for key in memory.refused if key in before}}


def _refusals(memory: Memory, rolled: rolling.Rolled) -> dict[str, str]:
    said = {key: f"{value!r} is not taken by the running brokers" for key, value in memory.refused.items()}
    return {**said, **rolled.refused}


def _late(cluster: Cluster, seen: Seen, rolled: rolling.Rolled) -> list[int]:
    """Brokers whose pod, as it should be, has not been ready for longer than it may."""
    roll = cluster.spec.roll
    within = datetime.timedelta(milliseconds=parse_duration_ms((roll and roll.timeout) or BACK_WITHIN))
    now = datetime.datetime.now(datetime.UTC)
    return [
        it.broker
        for it in seen.pods.values()
        if not it.is_ready and it.broker not in rolled.outdated and now - it.since > within
    ]


def _noted(stateful_set: Json | None, notes: Mapping[str, str]) -> Json | None:
    if stateful_set is None:
        return None
    metadata = stateful_set["metadata"]
    kept = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key not in names.STATE_ANNOTATIONS
    }
    return {**stateful_set, "metadata": {**metadata, "annotations": {**kept, **notes}}}


def _json(it: Mapping[str, str]) -> str:
    return json.dumps(it, sort_keys=True)
