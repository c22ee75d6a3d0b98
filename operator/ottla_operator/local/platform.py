"""This machine as a `reconcile.platform.Platform`: resources come from files, brokers and drivers
are processes, and reports go to the terminal."""

import asyncio
import datetime
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ottla_operator.certificates.internal_authority import authority_secret_name
from ottla_operator.local import internal_certificates, secrets
from ottla_operator.local.brokers import BrokerProcesses
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home, read_state, write_certificates, write_console_files
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.login_files import ensure_login, read_login
from ottla_operator.local.pipelines import PipelineProcesses, ProcessConnection, ProcessLaunch
from ottla_operator.local.registry_ports import has_registry_extra
from ottla_operator.local.status_printer import StatusPrinter
from ottla_operator.local.user_files import (
    delete_user_secret,
    read_user_records,
    read_user_secret,
    write_user_records,
    write_user_secret,
)
from ottla_operator.plan import listener_certificates
from ottla_operator.plan import mirror as mirror_plan
from ottla_operator.plan.broker_processes import plan_broker_processes
from ottla_operator.plan.cluster_status import CERTIFICATE_UNUSABLE
from ottla_operator.plan.conditions import Conditions, Reconciling, Stalled, render_conditions
from ottla_operator.plan.console import console_files
from ottla_operator.plan.inter_broker_login import authenticates_everyone
from ottla_operator.plan.listener_security import (
    describe_missing_open_listener,
    security_protocol,
)
from ottla_operator.plan.password_rotation import LoginSecret, due_rotation
from ottla_operator.plan.registry_access import RegistryAccess, registry_security
from ottla_operator.plan.settings import Settings
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, uses_sasl
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.plan.user_records import UserRecord
from ottla_operator.plan.user_secret import Contents
from ottla_operator.reconcile.component_users import pipeline_login
from ottla_operator.reconcile.platform import Blocked, BrokerAccess
from ottla_operator.reconcile.watch_cache import Key, WatchCache, resource_key
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import format_time
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.user import User


class LocalPlatform:
    """`on_process_change`: called with kind and key when a process of a Cluster or Pipeline
    changes, and with Topic and the key of its Cluster when conditions of a Topic change.
    `reported`: set with every status that is written.
    """

    roll_timeout_s = 30.0

    def __init__(
        self, home: Home, view: LiveView, cache: WatchCache, on_process_change: Callable[[str, Key], None]
    ) -> None:
        self.home = home
        self.view = view
        self.cache = cache
        self.clusters: dict[str, BrokerProcesses] = {}
        self.pipelines = PipelineProcesses(home, view, lambda name: on_process_change("Pipeline", local_key(name)))
        self.reported = asyncio.Event()
        self._on_process_change = on_process_change
        self._documents: dict[tuple[str, str], Document] = {}
        self._printer = StatusPrinter(view, self._documents)
        self._secrets: dict[str, ObservedSecret] = {}
        self._issued_secrets: dict[str, ObservedSecret] = {}
        """Secrets with certificates that the Clusters' own authorities have issued."""
        self._deletion_records: dict[Key, dict[str, DeletionRecord]] = {}

    def load(self, documents: Sequence[Document]) -> None:
        """Replaces the resources by those of the files, and plans the brokers of all clusters."""
        self._documents = self._printer.documents = {(it.kind, it.name): it for it in documents}
        self._secrets = secrets.read_secrets(it.data for it in documents if it.kind == secrets.KIND)
        clusters = {it.name: Cluster.parse(it.data) for it in documents if it.kind == "Cluster"}
        home = self.home.path.resolve()
        certificates = {}
        for name, cluster in clusters.items():
            if (found := listener_certificates.read_certificates(cluster, self._secrets)) is not None:
                certificates[name], is_renewed = write_certificates(home / name, found)
                if is_renewed:
                    self.view.say(f"cluster {name}: Secret {found.secret} is renewed: brokers read it", "info")
            write_console_files(home / name, console_files(cluster, self._secrets))
        certificates |= {
            name: Home(home).internal_certificates(name)
            for name, it in clusters.items()
            if listener_certificates.issues_certificates(it)
        }
        existing = {name: read_state(home / name)[0] for name in clusters}
        logins = {name: self._login(name, it) for name, it in clusters.items()}
        folders = {name: self.home.login(name).resolve() for name, it in logins.items() if it is not None}
        serves_registry = has_registry_extra()
        plans = plan_broker_processes(
            [*clusters.values()], home, existing, certificates, folders, serves_registry=serves_registry
        )
        for name in clusters:
            document, own = self._documents["Cluster", name], [it for it in plans if it.cluster == name]
            if (brokers := self.clusters.get(name)) is not None:
                brokers.document, brokers.plans = document, own
            else:
                on_change = self._notifier(name)
                self.clusters[name] = BrokerProcesses(name, self.home, self.view, on_change, document, own)
            self.clusters[name].login = logins[name]

    def _login(self, name: str, cluster: Cluster) -> LoginSecret | None:
        """Passwords of the inter-broker login; None if the brokers have never had one."""
        folder = self.home.login(name)
        if not authenticates_everyone(cluster):
            return read_login(folder)
        return ensure_login(folder, due_rotation(cluster, datetime.datetime.now(datetime.UTC)))

    def _notifier(self, cluster: str) -> Callable[[], None]:
        return lambda: self._on_process_change("Cluster", local_key(cluster))

    # Resources.

    async def find_cluster(self, key: Key) -> Json | None:
        return self.cache.clusters.get(key)

    async def find_access_policy(self, key: Key) -> Json | None:
        """Reads the loaded files, not the cache: at a start the controller gets the resources one
        by one.
        """
        document = self._documents.get(("AccessPolicy", key.name))
        return None if document is None else document.data

    def find_unsupported(self, resource: Json) -> str:
        return mirror_plan.find_unsupported(Mirror.parse_stored(resource)) if resource["kind"] == "Mirror" else ""

    async def read_secrets(self, namespace: str, names: Iterable[str]) -> dict[str, ObservedSecret]:
        return {**self._secrets, **self._issued_secrets}

    async def read_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """There is none: `find_unsupported_source` refuses Schemas that would need one."""
        return None

    async def write_finalizers(self, resource: Json, finalizers: Sequence[str]) -> None:
        metadata = resource["metadata"]
        metadata["finalizers"] = [*finalizers]
        if not finalizers and "deletionTimestamp" in metadata:
            self.cache.forget(resource)

    # Reports.

    async def write_status(self, resource: Json, conditions: Conditions, fields: Mapping[str, Json]) -> None:
        previous, now = resource.get("status") or {}, format_time(time.time())
        resource["status"] = {
            "observedGeneration": conditions.generation,
            "conditions": render_conditions(conditions, previous.get("conditions") or (), now),
            **{key: value for key, value in fields.items() if value is not None},
        }
        self._printer.show(resource, conditions)
        self.reported.set()
        if resource["kind"] == "Topic" and resource["status"]["conditions"] != previous.get("conditions"):
            self._on_process_change("Topic", local_key(resource["spec"]["clusterRef"]["name"]))

    async def record_event(
        self, resource: Json, reason: str, message: str, *, is_warning: bool = False, lasts: bool = False
    ) -> None:
        self._printer.print(resource, message, is_error=is_warning)

    # Clusters.

    async def broker_access(self, cluster: Cluster) -> BrokerAccess:
        return self.clusters[cluster.name].access

    async def prepare_brokers(
        self, resource: Json, cluster: Cluster, rejected: Settings, refused: str
    ) -> BrokerProcesses:
        """Files with refused settings are not loaded (`documents.py`), so `refused` is always
        empty.
        """
        brokers = self.clusters[cluster.name]
        brokers.certificate, brokers.certificate_error = None, ""
        if listener_certificates.issues_certificates(cluster):
            await self._maintain_certificates(resource, cluster, brokers)
        return brokers.prepare(cluster, rejected)

    async def _maintain_certificates(self, resource: Json, cluster: Cluster, brokers: BrokerProcesses) -> None:
        """Raises Blocked if there are no certificates to start brokers with."""
        try:
            issued = internal_certificates.maintain_certificate_files(self.home, cluster)
        except SecretUnusable as error:
            if not self.home.internal_certificates(cluster.name).exists():
                raise Blocked(Stalled(CERTIFICATE_UNUSABLE, str(error))) from error
            brokers.certificate_error = str(error)
            return
        brokers.certificate = issued.status
        for name, values in (
            (authority_secret_name(cluster), issued.authority),
            (listener_certificates.secret_name(cluster), issued.brokers),
        ):
            self._issued_secrets[name] = ObservedSecret(values, issued.status.not_after)
        for change in issued.changes:
            await self.record_event(resource, "CertificateChanged", change)

    async def forget_cluster(self, key: Key) -> None:
        if (brokers := self.clusters.pop(key.name, None)) is not None:
            self.view.say(f"cluster {key.name} is no longer described: stopping its brokers; its data stay", "warning")
            await brokers.stop()

    # Topics.

    async def find_topic_uid(self, namespace: str, name: str) -> str | None:
        found = (it.get(name) for it in self.cache.topics.values())
        return next((str(it["metadata"]["uid"]) for it in found if it is not None), None)

    async def read_deletion_records(self, cluster: Key) -> dict[str, DeletionRecord]:
        return dict(self._deletion_records.get(cluster, {}))

    async def write_deletion_records(self, cluster: Json, records: Mapping[str, DeletionRecord]) -> None:
        """Keeps the records in memory. A Topic that is removed from the files while no `ottla up`
        is running keeps its topic.
        """
        self._deletion_records[resource_key(cluster)] = dict(records)

    async def ensure_topic_pipeline(self, topic: Json, pipeline: Json) -> Json | None:
        """Only finds the Pipeline: `lake_documents` has added it to the resources of the files."""
        name, cluster = pipeline["metadata"]["name"], pipeline["spec"]["clusterRef"]["name"]
        document = self._documents.get(("Pipeline", name))
        if document is not None and document.file != self.home.lake_pipeline(cluster, name):
            raise Blocked(Stalled("NameConflict", f"Pipeline {name} is described in {document.file}; rename it"))
        return self.cache.pipelines.get(local_key(name))

    async def delete_topic_pipeline(self, topic: Json, name: str) -> None:
        """Does nothing: `UpRunner` removes a Pipeline that is in no document."""

    # Schemas.

    async def registry_access(self, cluster: Cluster, brokers: BrokerAccess) -> RegistryAccess:
        """Clients check the authority of the registry's certificate but not its names: a
        certificate from a Secret need not name 127.0.0.1.
        """
        processes = self.clusters[cluster.name]
        authorities = processes.read_authorities() if cluster.registry_has_tls else ""
        operator = replace(brokers.security, verifies_hostname=False)
        security = registry_security(cluster, operator, authorities, server_name="", is_loopback=True)
        if isinstance(security, str):
            raise Blocked(Stalled("NoRegistryLogin", security))
        if not processes.registry_addresses:
            raise Blocked(Stalled("NoSchemaRegistry", f"Cluster {cluster.name} serves no schema registry"))
        return RegistryAccess(processes.registry_addresses, security)

    # Users.

    async def find_user_uid(self, namespace: str, name: str) -> str | None:
        """The uid of a User in the files, which may not have been passed to the controller yet: at
        a start Clusters are passed first.
        """
        return local_user_uid(name) if ("User", name) in self._documents else None

    async def find_user(self, cluster: Key, name: str) -> Json | None:
        return self.cache.users.get(cluster, {}).get(name)

    async def ensure_component_user(self, owner: Json, user: Json) -> Json | None:
        """Only finds the User: `component_documents` has added it to the resources of the files."""
        name = user["metadata"]["name"]
        if (document := self._documents.get(("User", name))) is not None and document.data["spec"] != user["spec"]:
            raise Blocked(Stalled("NameConflict", f"User {name} is described in {document.file}; rename it"))
        return await self.find_user(local_key(user["spec"]["clusterRef"]["name"]), name)

    async def delete_component_user(self, owner: Json, cluster: Key, name: str) -> None:
        """Does nothing: `UpRunner` removes a User that is in no document."""

    async def read_user_records(self, cluster: Key) -> dict[str, UserRecord]:
        return read_user_records(self.home.cluster(cluster.name))

    async def write_user_records(self, cluster: Json, records: Mapping[str, UserRecord]) -> None:
        write_user_records(self.home.cluster(cluster["metadata"]["name"]), records)

    async def read_user_secret(self, cluster: Cluster, user: User) -> Contents:
        return read_user_secret(self.home.user(cluster.name, user.secret_name))

    async def write_user_secret(self, user: Json, name: str, data: Contents) -> None:
        folder = self.home.user(user["spec"]["clusterRef"]["name"], name)
        write_user_secret(folder, data)
        self._printer.print(user, f"clients connect with {folder / 'client.properties'}")

    async def forget_user(self, cluster: Json, record: UserRecord) -> None:
        delete_user_secret(self.home.user(cluster["metadata"]["name"], record.secret))

    # Mirrors.

    def source_bootstrap(self, source: Cluster, mirror: Mirror) -> str:
        transport = "SSL" if mirror.spec.source.tls is not None else "PLAINTEXT"
        protocol = f"SASL_{transport}" if uses_sasl(mirror) else transport
        if authenticates_everyone(source) and protocol not in map(security_protocol, source.listeners):
            message = (
                f"Cluster {source.name}, the source, has no listener with {protocol}: set source.tls and credentials"
            )
            raise Blocked(Reconciling("SourceNotFound", message))
        plans = [it for it in self.clusters[source.name].plans if it.id <= source.spec.replicas]
        return ",".join(it.address_with(protocol) or it.address for it in plans)

    # Pipelines.

    async def plan_launch(self, resource: Json, pipeline: Pipeline, cluster: Cluster) -> ProcessLaunch:
        document = self._documents["Pipeline", pipeline.name]
        registry = self.clusters[cluster.name].registry_url(cluster) if pipeline.uses_registry else ""
        if (login := await pipeline_login(self, resource, pipeline, cluster)) is not None:
            folder = self.home.user(cluster.name, login.secret).resolve()
            connection = ProcessConnection(login.bootstrap, folder, login.digest, registry)
            return self.pipelines.plan(pipeline, document, connection, self._secrets)
        if authenticates_everyone(cluster):
            raise Blocked(Stalled("NoPlaintextListener", describe_missing_open_listener(cluster)))
        bootstrap = ",".join(self.clusters[cluster.name].bootstrap_addresses)
        connection = ProcessConnection(bootstrap, registry=registry)
        return self.pipelines.plan(pipeline, document, connection, self._secrets)

    def start_spark(self) -> None:
        """Starts the driver of the first Pipeline while its brokers start, if it needs no login, no
        schema registry and no Secret. More drivers would slow down the brokers.
        """
        for (kind, _), document in self._documents.items():
            if kind == "Pipeline":
                pipeline = Pipeline.parse(document.data)
                brokers = self.clusters.get(pipeline.spec.cluster_ref.name)
                if brokers is None or pipeline.uses_registry or pipeline.secrets:
                    return
                if not authenticates_everyone(Cluster.parse(brokers.document.data)):
                    connection = ProcessConnection(",".join(brokers.bootstrap_addresses))
                    self.pipelines.start_spark(pipeline, document, connection)
                return

    async def forget_pipeline(self, key: Key) -> None:
        await self.pipelines.stop_driver(key.name)


def local_key(name: str) -> Key:
    """The key of a resource; the files have no namespaces."""
    return Key("default", name)


def local_user_uid(name: str) -> str:
    """A uid that is the same at each start, so that records of users stay valid."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"User/{name}"))
