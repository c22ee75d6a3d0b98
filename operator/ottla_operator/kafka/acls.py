"""Access control entries (DescribeAcls, CreateAcls, DeleteAcls), and the brokers' settings for
authorization.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.static.primitive import i8

from ottla_broker.security.acl_descriptions import read_entries
from ottla_broker.security.acls import ANY, AccessControlEntry, AclFilter, PatternType
from ottla_broker.security.restricted_super_users import RestrictedSuperUsers, parse_restricted_super_users
from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka.client import KafkaClient, find_error, raise_for_error
from ottla_operator.kafka.configs import ConfigResourceType, describe_configs

T = TypeVar("T")
Filter = TypeVar("Filter", DescribeAclsRequest, DeleteAclsFilter)

EVERY_ENTRY: Final = AclFilter(ANY, None, PatternType.ANY, None, None, ANY, ANY)
MAX_ENTRIES_IN_REQUEST: Final = 1000
"""An entry is about 100 bytes: requests stay far below what brokers accept."""
AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
RESTRICTED_SUPER_USERS: Final = "restricted.super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True)
class AuthorizationConfig:
    """The brokers' settings for authorization. `is_enabled`: if false, every request is allowed.
    `super_users`: principals as text. `restricted`: the operations of restricted super users.
    `allow_if_no_acl`: a resource without entries is open to everybody.
    """

    is_enabled: bool
    super_users: tuple[str, ...]
    restricted: RestrictedSuperUsers
    allow_if_no_acl: bool


async def describe_acls(client: KafkaClient, selected: AclFilter = EVERY_ENTRY) -> list[AccessControlEntry]:
    """Selected entries. Raises KafkaError: SECURITY_DISABLED if the brokers have no authorizer."""
    response = await client.send_to_controller(_build_filter(DescribeAclsRequest, selected))
    raise_for_error(response.error_code, response.error_message, "access rules")
    return read_entries(response)


async def create_acls(
    client: KafkaClient, entries: Iterable[AccessControlEntry]
) -> dict[AccessControlEntry, KafkaError]:
    """Returns the errors of entries that were refused. Entries that exist are left as they are."""
    errors: dict[AccessControlEntry, KafkaError] = {}
    for chunk in _split_into_requests(list(entries)):
        response = await client.send_to_controller(CreateAclsRequest(creations=tuple(map(_creation, chunk))))
        for entry, result in zip(chunk, response.results, strict=True):
            subject = f"access rule of {entry.principal}"
            if (error := find_error(result.error_code, result.error_message, subject)) is not None:
                errors[entry] = error
    return errors


async def delete_acls(client: KafkaClient, filters: Sequence[AclFilter]) -> int:
    """Deletes the entries that the filters select. Returns their number. Raises KafkaError for the
    first error.
    """
    deleted = 0
    for chunk in _split_into_requests(filters):
        response = await client.send_to_controller(
            DeleteAclsRequest(filters=tuple(_build_filter(DeleteAclsFilter, it) for it in chunk))
        )
        for result in response.filter_results:
            raise_for_error(result.error_code, result.error_message, "access rules")
            deleted += len(result.matching_acls)
    return deleted


def filter_for_entry(entry: AccessControlEntry) -> AclFilter:
    """Selects this entry alone."""
    return AclFilter(
        entry.resource_type,
        entry.resource_name,
        entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


def filter_for_principal(principal: str) -> AclFilter:
    """Selects every entry of a principal (`User:alice`)."""
    return AclFilter(ANY, None, PatternType.ANY, principal, None, ANY, ANY)


async def describe_authorization(client: KafkaClient, broker: int) -> AuthorizationConfig:
    """Reads from a broker's settings whether and how it authorizes requests."""
    keys = (AUTHORIZER, SUPER_USERS, RESTRICTED_SUPER_USERS, ALLOW_IF_NO_ACL)
    (result,) = await describe_configs(client, ConfigResourceType.broker, (str(broker),), keys, broker=broker)
    values = {str(it.name): it.value or "" for it in result.configs}
    return AuthorizationConfig(
        bool(values.get(AUTHORIZER)),
        tuple(it.strip() for it in values.get(SUPER_USERS, "").split(";") if it.strip()),
        parse_restricted_super_users(values.get(RESTRICTED_SUPER_USERS, "")),
        values.get(ALLOW_IF_NO_ACL) == "true",
    )


def _split_into_requests(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), MAX_ENTRIES_IN_REQUEST):
        yield items[start : start + MAX_ENTRIES_IN_REQUEST]


def _creation(entry: AccessControlEntry) -> AclCreation:
    return AclCreation(
        resource_type=i8(entry.resource_type),
        resource_name=entry.resource_name,
        resource_pattern_type=i8(entry.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=i8(entry.operation),
        permission_type=i8(entry.permission),
    )


def _build_filter(kind: type[Filter], selected: AclFilter) -> Filter:
    return kind(
        resource_type_filter=i8(selected.resource_type),
        resource_name_filter=selected.resource_name,
        pattern_type_filter=i8(selected.pattern_type),
        principal_filter=selected.principal,
        host_filter=selected.host,
        operation=i8(selected.operation),
        permission_type=i8(selected.permission),
    )
