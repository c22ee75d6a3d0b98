"""Authorizers for tests."""

from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.security.principal import Principal


class DenyAll:
    """Allows no operation to anybody."""

    allows_everything = False

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return False
