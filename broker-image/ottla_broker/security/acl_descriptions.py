"""Reads the access control entries of a DescribeAcls response."""

from kio.schema.describe_acls.v3.response import DescribeAclsResponse

from ottla_broker.security.acls import AccessControlEntry


def read_entries(response: DescribeAclsResponse) -> list[AccessControlEntry]:
    return [
        AccessControlEntry(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]
