"""A request's context, which handlers get besides the request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Final, Protocol, cast

from kio.static.primitive import i32

from ottla_broker.broker import Broker
from ottla_broker.requests.reply import Reply
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.security.audit import AuditedResource, AuditEvent
from ottla_broker.security.authorizer import CLUSTER, OPERATIONS, Authorizer, Operation, Resource, ResourceType
from ottla_broker.security.principal import ANONYMOUS, Principal
from ottla_broker.security.sasl_session import SaslSession
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.request_header import RequestHeader

OPERATIONS_NOT_REQUESTED: Final = i32(-(2**31))
"""The bit field of authorized operations where the request does not ask for them (KIP-430)."""

AUTHORIZATION_ERRORS: Final = {
    ResourceType.topic: ErrorCode.topic_authorization_failed,
    ResourceType.group: ErrorCode.group_authorization_failed,
    ResourceType.cluster: ErrorCode.cluster_authorization_failed,
    ResourceType.transactional_id: ErrorCode.transactional_id_authorization_failed,
    ResourceType.delegation_token: ErrorCode.delegation_token_authorization_failed,
    ResourceType.user: ErrorCode.delegation_token_authorization_failed,
}


def _do_nothing_for(_: float) -> None:
    pass


DENIED: Final = "denied"
DONE: Final = "done"
"""Results of an audit event, besides names of errors."""
API_KEYS: Final = frozenset(int(key) for key in ApiKey)


class CloseConnection(Exception):
    """Raised to close the connection where no response can report the error, as to a producer with
    acks=0.
    """


class RepeatableRequest(Protocol):
    """The last heartbeat of a connection. `key`: its API key."""

    key: int

    def is_repeated_by(self, frame: bytearray) -> bool:
        """True if the request in `frame` differs from this one only in its correlation id and its
        epoch or generation.
        """
        ...

    def repeat(self, frame: bytearray) -> Reply:
        """The reply to a request that repeats this one, which `is_repeated_by` has found; None
        where the request has to be parsed.
        """
        ...


@dataclass(slots=True)
class ConnectionState:
    """The client at the other end of a connection, and what the broker remembers of it.

    `software_name` and `software_version`: those that the client sent in ApiVersions (KIP-511).
    `is_follower`: a broker that fetches as a replica. `stepped_down_s`: loop time of the last
    response that told the client that a leader has just stepped down. `sasl`: None on a listener
    without SASL. `last_fetch`: a RepeatedFetch, which imports this module; None without one.
    `mute`: reads nothing more from the connection for some seconds. `on_closed`: callbacks that end
    what the connection began, such as share sessions, by a key of their owner's choice.
    """

    host: str
    port: int
    listener: str
    principal: Principal = ANONYMOUS
    software_name: str = "unknown"
    software_version: str = "unknown"
    is_follower: bool = False
    sasl: SaslSession | None = None
    stepped_down_s: float = -inf
    last_fetch: object | None = None
    last_heartbeat: RepeatableRequest | None = None
    mute: Callable[[float], None] = _do_nothing_for
    on_closed: dict[object, Callable[[], None]] = field(default_factory=dict)


class ChargedRequest(Protocol):
    """A request whose bytes handlers charge to its client's quotas: see `request_quota`."""

    throttle_ms: int

    def charge_produce(self, size: int) -> int: ...

    def max_fetch_bytes(self) -> int | None: ...

    def charge_fetch(self, size: int) -> bool: ...

    def charge_share_fetch(self, size: int) -> None: ...


class RequestContext:
    """One request. `version` is the version of the request on the wire, whatever version its
    handler is written for. `quota`: None where no client quota applies. `trace`: None unless it is
    traced.

    Not a dataclass, because one is created for each request, and even in a compiled module the
    constructor of a dataclass is interpreted.
    """

    __slots__ = (
        "api_key",
        "authorizer",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "quota",
        "trace",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        connection: ConnectionState,
        version: int,
        client_id: str | None,
        authorizer: Authorizer,
        quota: ChargedRequest | None = None,
        api_key: int = -1,
        correlation_id: int = 0,
        trace: RequestTrace | None = None,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.authorizer = authorizer
        self.quota = quota
        self.api_key = api_key
        self.correlation_id = correlation_id
        self.trace = trace

    @property
    def throttle_ms(self) -> int:
        return 0 if self.quota is None else self.quota.throttle_ms

    def is_authorized(self, operation: Operation, resource: Resource) -> bool:
        """True if the client may do this. A denial is recorded in the audit log."""
        if self.may(operation, resource):
            return True
        audited = AuditedResource(resource.kind.name.upper(), resource.name)
        self.record_audit(operation.name.upper(), audited, DENIED)
        return False

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Like `is_authorized`, but without an entry in the audit log: the caller goes on to check
        another operation, or leaves the resource out of a list.
        """
        return self.authorizer.allows(self.connection.principal, self.connection.host, operation, resource)

    def may_read_group(self, group_id: str) -> bool:
        """`may` for the requests of a group's members."""
        return self.authorizer.allows_everything or self.may(Operation.read, Resource.group(group_id))

    def record_audit(self, operation: str, resource: AuditedResource, result: str) -> None:
        """Records an event of this client and request. `result`: DONE, DENIED, or the name of an
        error.
        """
        client = self.connection
        at = datetime.fromtimestamp(self.broker.runtime.now_ms() / 1000, UTC)
        api = ApiKey(self.api_key).title if self.api_key in API_KEYS else str(self.api_key)
        self.broker.audit_log.record(
            AuditEvent(
                at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                str(client.principal),
                client.host,
                client.listener,
                self.client_id,
                api,
                self.correlation_id,
                operation,
                resource,
                result,
            )
        )

    def check_authorized(self, operation: Operation, resource: Resource) -> None:
        """Raises the resource's error of AUTHORIZATION_ERRORS, such as
        TOPIC_AUTHORIZATION_FAILED.
        """
        if not self.is_authorized(operation, resource):
            raise KafkaError(AUTHORIZATION_ERRORS[resource.kind])

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """True if the client may do the operation on some resource of the type."""
        return self.authorizer.allows_any(self.connection.principal, self.connection.host, operation, kind)

    def authorized_operations(self, resource: Resource, *, requested: bool = True) -> i32:
        """The operations that the client may do on a resource, as Kafka's bit field (KIP-430);
        OPERATIONS_NOT_REQUESTED unless `requested`.
        """
        if not requested:
            return OPERATIONS_NOT_REQUESTED
        return cast(
            i32, sum(1 << operation for operation in OPERATIONS[resource.kind] if self.may(operation, resource))
        )

    def cluster_operations(self, *, requested: bool) -> i32:
        """The operations on the cluster that the client may do, as Kafka's bit field; none if it
        may not describe the cluster.
        """
        if requested and not self.may(Operation.describe, CLUSTER):
            return i32(0)
        return self.authorized_operations(CLUSTER, requested=requested)


class FrameHandler(Protocol):
    """A handler of the hot path: it reads and writes its messages itself, and seldom starts a task.

    The response should not exceed `max_response_bytes`, the memory that is left for it. Raises
    MalformedMessage and CloseConnection.
    """

    def __call__(
        self, context: RequestContext, frame: bytearray, header: RequestHeader, max_response_bytes: int, /
    ) -> Reply: ...
