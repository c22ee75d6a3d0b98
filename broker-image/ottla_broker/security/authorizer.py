"""Authorization of requests. Codes are those of Kafka's AclOperation and ResourceType.

Without `authorizer.class.name` everything is allowed (`AllowAll`); `standard_authorizer` decides by
entries.
"""

from enum import IntEnum
from typing import Final, Protocol

import msgspec

from ottla_broker.security.principal import Principal


class Operation(IntEnum):
    all = 2
    read = 3
    write = 4
    create = 5
    delete = 6
    alter = 7
    describe = 8
    cluster_action = 9
    describe_configs = 10
    alter_configs = 11
    idempotent_write = 12
    create_tokens = 13
    describe_tokens = 14
    two_phase_commit = 15


class ResourceType(IntEnum):
    topic = 2
    group = 3
    cluster = 4
    transactional_id = 5
    delegation_token = 6
    user = 7


class Resource(msgspec.Struct, frozen=True):
    kind: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "Resource":
        return cls(ResourceType.topic, name)

    @classmethod
    def group(cls, name: str) -> "Resource":
        return cls(ResourceType.group, name)

    @classmethod
    def transactional_id(cls, name: str) -> "Resource":
        return cls(ResourceType.transactional_id, name)


CLUSTER: Final = Resource(ResourceType.cluster, "kafka-cluster")  # Kafka's name of the one cluster resource

# The operations that each kind of resource has: the bits of "authorized operations" in Metadata and
# the Describe APIs.
OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.topic: (
        Operation.read,
        Operation.write,
        Operation.create,
        Operation.delete,
        Operation.alter,
        Operation.describe,
        Operation.describe_configs,
        Operation.alter_configs,
    ),
    ResourceType.group: (
        Operation.read,
        Operation.delete,
        Operation.describe,
        Operation.describe_configs,
        Operation.alter_configs,
    ),
    ResourceType.cluster: (
        Operation.create,
        Operation.alter,
        Operation.describe,
        Operation.cluster_action,
        Operation.describe_configs,
        Operation.alter_configs,
        Operation.idempotent_write,
    ),
    ResourceType.transactional_id: (Operation.write, Operation.describe, Operation.two_phase_commit),
    ResourceType.delegation_token: (Operation.describe,),
    ResourceType.user: (Operation.create_tokens, Operation.describe_tokens),
}

IMPLIED_BY: Final = {
    Operation.describe: frozenset(
        {Operation.describe, Operation.read, Operation.write, Operation.delete, Operation.alter}
    ),
    Operation.describe_configs: frozenset({Operation.describe_configs, Operation.alter_configs}),
}
"""Operations that an ALLOW entry may name for this one to be allowed, where it is not just the
operation itself.
"""


class Authorizer(Protocol):
    """Decides what clients may do. Decisions depend on nothing but the arguments and the rules."""

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool: ...

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True if the operation is allowed on some resource of the type, which need not exist."""
        ...

    @property
    def generation(self) -> int:
        """Another number after each change of the rules."""
        ...

    @property
    def allows_everything(self) -> bool:
        """True lets hot paths skip the check of every partition."""
        ...


class AllowAll:
    """Kafka's behaviour when no authorizer is configured."""

    allows_everything = True
    generation = 0

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return True

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        return True
