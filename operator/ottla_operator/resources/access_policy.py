"""AccessPolicy: access rules that several users have."""

from typing import Annotated, Literal

from ottla_operator.resources.acl_rule import AclRules
from ottla_operator.resources.common import Resource, Status
from ottla_operator.resources.model import Model, doc, listed


class AccessPolicySpec(Model, frozen=True):
    """Desired state of the policy."""

    acls: Annotated[
        AclRules,
        doc(
            "Access rules of every User whose aclsFrom names this policy, on clusters with authorization type ACL.",
            listed("atomic"),
        ),
    ]


class AccessPolicyStatus(Status, frozen=True):
    """Observed state of the policy."""

    users: Annotated[int | None, doc("Number of Users that name the policy.")] = None


class AccessPolicy(Resource, frozen=True):
    """Access rules that Users of the same namespace have by `aclsFrom`."""

    kind: Literal["AccessPolicy"]
    spec: AccessPolicySpec
    status: AccessPolicyStatus | None = None
