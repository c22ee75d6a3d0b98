"""Authorizers for tests."""

from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal


class DenyAll:
    """Denies every operation of every principal while `denies` is true; otherwise allows all."""

    denies = True

    allows_everything = False
    generation = 0

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return not self.denies

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        return not self.denies


class DescribeOnly:
    """Allows DESCRIBE on one resource, or on all (None), and nothing else."""

    allows_everything = False
    generation = 0

    def __init__(self, resource: Resource | None = None) -> None:
        self._resource = resource

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return operation is Operation.describe and self._resource in (None, resource)

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        return False
