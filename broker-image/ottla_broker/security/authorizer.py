"""Who may do what: the door that every handler asks. Codes are those of Kafka's AclOperation and ResourceType.

Today everybody may do everything, as in Kafka without an authorizer; access control lists will be another
`Authorizer`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from ottla_broker.security.principal import Principal


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


@dataclass(frozen=True, slots=True)
class Resource:
    kind: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "Resource":
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> "Resource":
        return cls(ResourceType.GROUP, name)

    @classmethod
    def transactional_id(cls, name: str) -> "Resource":
        return cls(ResourceType.TRANSACTIONAL_ID, name)

    @classmethod
    def cluster(cls) -> "Resource":
        return CLUSTER


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")  # Kafka's name of the one cluster resource

# What can be asked for a resource of each kind; the bits of "authorized operations" in Metadata and the Describe
# APIs.
OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


class Authorizer(Protocol):
    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool: ...

    @property
    def allows_everything(self) -> bool:
        """True lets hot paths skip the question for every partition."""
        ...


class AllowAll:
    """Kafka's behaviour when no authorizer is configured."""

    allows_everything = True

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return True
