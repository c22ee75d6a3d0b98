"""Client quotas: their entities, allowed values and filters (KIP-546).

An entity is a user, a client id, a user with a client id, or an IP address. Instead of a name each
part may be the default of its type.
"""

import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

import msgspec

from ottla_broker.wire.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in the order of ENTITY_TYPES. The name None: the default of the type."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
_INTEGER_LIMITS: Final = {
    PRODUCER_BYTE_RATE: 2.0**63,
    CONSUMER_BYTE_RATE: 2.0**63,
    CONNECTION_CREATION_RATE: 2.0**31 - 1,
}
_MAX_FRACTION: Final = 1e-6  # of an integer that a client sends as a float


def make_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Raises INVALID_REQUEST for an entity that can have no quota."""
    parts = list(parts)
    types = [entity_type for entity_type, _ in parts]
    if not parts:
        raise _invalid("the quota entity is empty; allowed: user, client-id, user and client-id, ip")
    for entity_type, name in parts:
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"unknown type {entity_type!r} of a quota entity; allowed: {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise _invalid(f"the {entity_type} of a quota entity is empty; allowed: a name, or null for the default")
    if len(set(types)) < len(types):
        raise _invalid(f"the quota entity names a type twice: {', '.join(types)}")
    if IP in types and len(types) > 1:
        raise _invalid("a quota entity with an ip can have no user and no client-id")
    names = dict(parts)
    if (address := names.get(IP)) is not None and not _is_ip_address(address):
        raise _invalid(f"the ip {address!r} of a quota entity is no IPv4 or IPv6 address")
    return tuple((entity_type, names[entity_type]) for entity_type in ENTITY_TYPES if entity_type in names)


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    """Raises INVALID_REQUEST."""
    allowed = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    if key not in allowed:
        raise _invalid(f"unknown quota {key!r} of a {entity[0][0]}; allowed: {', '.join(allowed)}")
    if not (value > 0 and math.isfinite(value)):
        raise _invalid(f"{key} is {value:g}; allowed: a number greater than 0")
    if (limit := _INTEGER_LIMITS.get(key)) is not None:
        if value > limit:
            raise _invalid(f"{key} is {value:g}; allowed: at most {limit:.0f}")
        if value % 1.0 > _MAX_FRACTION:
            raise _invalid(f"{key} is {value}; allowed: a whole number")


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


class MatchType(IntEnum):
    """The way in which a filter compares the name of one entity type. Codes are Kafka's."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2  # any name, and the default


class QuotaFilter(msgspec.Struct, frozen=True):
    """Selects entities. `names`: the name that an entity must have of each type, None for the
    default; `types`: types that it must have, with any name; `is_strict`: it has no other types."""

    names: Mapping[str, str | None]
    types: frozenset[str]
    is_strict: bool

    @classmethod
    def from_components(cls, components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> "QuotaFilter":
        """Builds a filter from (type, match type, name) triples. Raises INVALID_REQUEST;
        UNSUPPORTED_VERSION for an unknown type.
        """
        names, types = dict[str, str | None](), set[str]()
        for entity_type, match_type, name in components:
            if not entity_type:
                raise _invalid("the filter has an empty entity type")
            if entity_type in names or entity_type in types:
                raise _invalid(f"the filter names the entity type {entity_type} twice")
            if entity_type not in ENTITY_TYPES:
                raise KafkaError(ErrorCode.unsupported_version, f"unknown entity type {entity_type!r} of a filter")
            if match_type not in list(MatchType):
                raise _invalid(f"unknown match type {match_type} of a filter; allowed: 0, 1, 2")
            if (match_type == MatchType.EXACT) != (name is not None):
                raise _invalid(f"a filter of {entity_type} with match type {match_type} has the name {name!r}")
            if match_type == MatchType.SPECIFIED:
                types.add(entity_type)
            else:
                names[entity_type] = name
        if IP in names.keys() | types and len(names) + len(types) > 1:
            raise _invalid("a filter of ip can have no user and no client-id")
        return cls(names, frozenset(types), is_strict)

    def selects(self, entity: QuotaEntity) -> bool:
        parts = dict(entity)
        if self.is_strict and len(parts) != len(self.names) + len(self.types):
            return False
        return self.types <= parts.keys() and all(
            entity_type in parts and parts[entity_type] == name for entity_type, name in self.names.items()
        )
