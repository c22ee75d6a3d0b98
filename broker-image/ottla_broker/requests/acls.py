"""Common parts of CreateAcls, DescribeAcls and DeleteAcls: their authorization, and the form of a
filter.
"""

from typing import Protocol

from ottla_broker.requests.context import RequestContext
from ottla_broker.security.acls import AclFilter
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.wire.errors import ErrorCode, KafkaError


class AclFilterMessage(Protocol):
    """A filter as DescribeAcls and DeleteAcls carry it."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def check_acl_authorization(ctx: RequestContext, operation: Operation) -> None:
    """Raises SECURITY_DISABLED without an authorizer, and CLUSTER_AUTHORIZATION_FAILED."""
    if ctx.broker.acl_authorizer is None:
        raise KafkaError(ErrorCode.security_disabled, "No Authorizer is configured.")
    ctx.check_authorized(operation, CLUSTER)


def read_filter(message: AclFilterMessage) -> AclFilter:
    return AclFilter(
        message.resource_type_filter,
        message.resource_name_filter,
        message.pattern_type_filter,
        message.principal_filter,
        message.host_filter,
        message.operation,
        message.permission_type,
    )
