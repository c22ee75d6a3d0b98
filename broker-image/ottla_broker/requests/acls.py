"""Common parts of CreateAcls, DescribeAcls and DeleteAcls: their authorization, and the form of a
filter.
"""

from kio.schema.delete_acls.v3.request import DeleteAclsFilter
from kio.schema.describe_acls.v3.request import DescribeAclsRequest

from ottla_broker.requests.context import RequestContext
from ottla_broker.security.acls import AclFilter
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.wire.errors import ErrorCode, KafkaError


def check_acl_authorization(ctx: RequestContext, operation: Operation) -> None:
    """Raises SECURITY_DISABLED without an authorizer, and CLUSTER_AUTHORIZATION_FAILED."""
    if ctx.broker.acl_authorizer is None:
        raise KafkaError(ErrorCode.security_disabled, "No Authorizer is configured.")
    ctx.check_authorized(operation, CLUSTER)


def read_filter(message: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        message.resource_type_filter,
        message.resource_name_filter,
        message.pattern_type_filter,
        message.principal_filter,
        message.host_filter,
        message.operation,
        message.permission_type,
    )
