"""The interface between reconcilers and the platform that a cluster runs on.

Kubernetes (`kube/`) runs brokers as pods and reports by `status` and events; `ottla up` (`local/`)
runs them as processes and reports on the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_operator.plan.cluster_status import ObservedBroker
from ottla_operator.plan.conditions import Conditions, Reconciling, Stalled
from ottla_operator.plan.password_rotation import LoginSecret
from ottla_operator.plan.pipeline.status import PipelineRun
from ottla_operator.plan.registry_access import RegistryAccess
from ottla_operator.plan.settings import Settings
from ottla_operator.plan.source_credentials import ObservedSecret
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.plan.user_records import UserRecord
from ottla_operator.plan.user_secret import Contents
from ottla_operator.reconcile.watch_cache import Key
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_tls import CertificateStatus
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.user import User


class PlatformError(Exception):
    """The platform refused a request or did not answer. `is_unavailable`: every request fails now.
    `is_rejection`: this request fails until a person changes something.
    """

    is_unavailable: bool = False
    is_rejection: bool = False


class Blocked(Exception):
    """The reconciliation of a resource cannot continue now. `requeue_s`: delay of the next attempt;
    None: the reconciler's own delay. `keeps_state`: the last reported state of a Pipeline's driver
    still holds.
    """

    def __init__(
        self, readiness: Reconciling | Stalled, requeue_s: float | None = None, *, keeps_state: bool = False
    ) -> None:
        super().__init__(readiness.message)
        self.readiness = readiness
        self.requeue_s = requeue_s
        self.keeps_state = keeps_state

    @classmethod
    def by_rejection(cls, error: PlatformError) -> "Blocked":
        """Raises the error again if it is not a rejection."""
        if not error.is_rejection:
            raise error
        message = f"the API server rejects a change: {error}"
        return cls(Stalled("RejectedByApiServer", message), keeps_state=True)


@dataclass(frozen=True, slots=True)
class ReconcileState:
    """State of a Cluster for the next operator or `ottla up`. Stored as annotations of its
    StatefulSet, or in brokers.json.

    `spread_over`: brokers over which partitions were last spread. `cluster_settings`: dynamic
    settings that the operator has set on the running brokers. `throttled_topics`: topics whose
    moves are throttled. `is_founding`: the cluster does not exist yet, and the first broker may
    found it.
    """

    spread_over: frozenset[int] = frozenset()
    cluster_settings: Settings = field(default_factory=dict)
    throttled_topics: frozenset[str] = frozenset()
    is_founding: bool = False


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """Addresses and security of reconcilers' connections to brokers. `addresses`: host:port of
    the brokers that are ready; empty if none is."""

    addresses: Sequence[str]
    security: ClientSecurity = UNSECURED


class BrokerSet(Protocol):
    """The brokers of one Cluster, brought to its spec except for what needs a restart, a move or
    the removal of one.

    `brokers`: existing brokers. `count`: number of brokers that must exist now, including those
    being removed. `desired`: settings of each broker of the spec. `access`: addresses and security
    to reach ready brokers, for the reconciler's own requests; `replica_addresses`: addresses of all
    running brokers. `login`: passwords of brokers and operator; None without a login. `bootstrap`:
    listener → host:port,… for clients; `selector`: label selector of the brokers' pods, both for
    the Cluster's status. `certificate_error`: why no broker may be restarted. `certificate`: of the
    listeners with TLS. `creation_error`: why a missing broker cannot be created; empty if none is
    missing, or nothing is known.
    """

    @property
    def brokers(self) -> Mapping[int, ObservedBroker]: ...

    @property
    def count(self) -> int: ...

    @property
    def state(self) -> ReconcileState: ...

    @property
    def desired(self) -> Mapping[int, Settings]: ...

    @property
    def access(self) -> BrokerAccess: ...

    @property
    def replica_addresses(self) -> Sequence[str]: ...

    @property
    def login(self) -> LoginSecret | None: ...

    @property
    def bootstrap(self) -> Mapping[str, str]: ...

    @property
    def selector(self) -> str: ...

    @property
    def certificate_error(self) -> str: ...

    @property
    def certificate(self) -> CertificateStatus | None: ...

    @property
    def creation_error(self) -> str: ...

    async def restart(self, broker: int) -> None:
        """Restarts one broker with its desired settings. Returns when it is stopping or has
        stopped.
        """

    async def save(self, count: int, state: ReconcileState) -> None:
        """Persists the state, and starts or stops brokers until there are `count`: the highest ids
        are started last and stopped first."""

    async def save_login(self, login: LoginSecret) -> None:
        """Writes the passwords where brokers read them, in place of `self.login`."""

    async def finish(self, *, can_spare_a_broker: bool) -> None:
        """Deletes objects that brokers no longer need. `can_spare_a_broker`: Kubernetes may evict
        one broker.
        """


class Launch(Protocol):
    """The planned start of a Pipeline on the platform. `application`: the object that runs the
    driver, such as Deployment/NAME. `starts_driver`: whether `apply` starts a driver, the first or
    another.
    """

    @property
    def application(self) -> str: ...

    @property
    def starts_driver(self) -> bool: ...

    async def apply(self) -> PipelineRun:
        """Starts, stops or replaces the driver according to the spec, and returns its state."""


class Platform(Protocol):
    """Kubernetes, or processes of this machine. Any call may raise PlatformError."""

    @property
    def roll_timeout_s(self) -> float:
        """Time within which a broker must become ready, if the Cluster does not set one."""

    # Resources.

    async def find_cluster(self, key: Key) -> Json | None:
        """The Cluster of this name; None only if it certainly does not exist."""

    def find_unsupported(self, resource: Json) -> str:
        """The reason why this platform cannot run a resource that is valid in itself; empty if it
        can."""

    async def find_access_policy(self, key: Key) -> Json | None:
        """The AccessPolicy of this name; None only if it certainly does not exist."""

    async def read_secrets(self, namespace: str, names: Iterable[str]) -> dict[str, ObservedSecret]:
        """The Secrets that exist, by name. Raises SecretUnusable where one may not be read."""

    async def read_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The data of the ConfigMap; None if it does not exist."""

    async def write_finalizers(self, resource: Json, finalizers: Sequence[str]) -> None:
        """Replaces the resource's finalizers. A resource that is being deleted disappears with
        its last one.
        """

    # Reports.

    async def write_status(self, resource: Json, conditions: Conditions, fields: Mapping[str, Json]) -> None:
        """Replaces the resource's status, if it changed. `fields`: status fields besides the
        conditions; None leaves one out.
        """

    async def record_event(
        self, resource: Json, reason: str, message: str, *, is_warning: bool = False, lasts: bool = False
    ) -> None:
        """Records an event. `lasts`: the caller records the event at every reconcile while its
        cause lasts, and it is shown at longer intervals. Never raises.
        """

    # Clusters.

    async def broker_access(self, cluster: Cluster) -> BrokerAccess:
        """Addresses and security to reach the ready brokers, for the reconciler's own requests."""

    async def prepare_brokers(self, resource: Json, cluster: Cluster, rejected: Settings, refused: str) -> BrokerSet:
        """Applies all objects of the brokers and starts missing brokers. `rejected`: settings with
        values that no broker may be started with; their previous values apply. `refused`: why a
        Cluster without brokers gets none; empty if it may. Raises Blocked.
        """

    async def forget_cluster(self, key: Key) -> None:
        """Called when the Cluster was deleted. Stops what the platform does not stop by itself."""

    # Topics.

    async def find_topic_uid(self, namespace: str, name: str) -> str | None:
        """The uid of the Topic resource of this name, read past any cache; None if there is
        none.
        """

    async def read_deletion_records(self, cluster: Key) -> dict[str, DeletionRecord]:
        """Deletion records by the Topic resource's uid. A record that cannot be read is left
        out.
        """

    async def write_deletion_records(self, cluster: Json, records: Mapping[str, DeletionRecord]) -> None: ...

    async def ensure_topic_pipeline(self, topic: Json, pipeline: Json) -> Json | None:
        """Creates or updates the Pipeline of a Topic's lake. Returns it as it was observed last;
        None if it is still to be observed. Raises Blocked if the name is taken, or the operator may
        not create it.
        """

    async def delete_topic_pipeline(self, topic: Json, name: str) -> None:
        """Deletes the Pipeline of a Topic that no longer has a lake, if there is one."""

    # Schemas.

    async def registry_access(self, cluster: Cluster, brokers: BrokerAccess) -> RegistryAccess:
        """Addresses and security to reach the schema registries of the ready brokers. `brokers`:
        those of the brokers themselves. Raises Blocked.
        """

    # Users.

    async def find_user_uid(self, namespace: str, name: str) -> str | None:
        """The uid of the User resource of this name, read past any cache; None if there is
        none.
        """

    async def find_user(self, cluster: Key, name: str) -> Json | None:
        """The User resource of this name and Cluster, as it was observed last, or None."""

    async def ensure_component_user(self, owner: Json, user: Json) -> Json | None:
        """Creates or updates the User that `owner`, a Pipeline or a Mirror, connects as. Returns it
        as it was observed last; None if it is still to be observed. Raises Blocked if the name is
        taken, or the operator may not create it.
        """

    async def delete_component_user(self, owner: Json, cluster: Key, name: str) -> None:
        """Deletes the User that `ensure_component_user` created for `owner`, if there is one."""

    async def read_user_records(self, cluster: Key) -> dict[str, UserRecord]:
        """Records of users by the User resource's uid. One that cannot be read is left out."""

    async def write_user_records(self, cluster: Json, records: Mapping[str, UserRecord]) -> None: ...

    async def read_user_secret(self, cluster: Cluster, user: User) -> Contents:
        """The data of the Secret for the user's clients; empty if there is none. Raises Blocked if
        another object has its name, SecretUnusable if it may not be read.
        """

    async def write_user_secret(self, user: Json, name: str, data: Contents) -> None:
        """Replaces what the user's clients need. `user`: the User resource. Raises Blocked,
        SecretUnusable.
        """

    async def forget_user(self, cluster: Json, record: UserRecord) -> None:
        """The User is deleted: deletes what was written for its clients, if the platform does not
        do so by itself.
        """

    # Mirrors.

    def source_bootstrap(self, source: Cluster, mirror: Mirror) -> str:
        """host:port,… by which the target's brokers reach a source that is a Cluster. Raises
        Blocked.
        """

    # Pipelines.

    async def plan_launch(self, resource: Json, pipeline: Pipeline, cluster: Cluster) -> Launch:
        """Raises Blocked, such as while another launcher's driver is still running."""

    async def forget_pipeline(self, key: Key) -> None:
        """Called when the Pipeline was deleted. Stops what the platform does not stop by itself."""
