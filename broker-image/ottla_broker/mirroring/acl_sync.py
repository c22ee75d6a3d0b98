"""Access rules of mirrored topics: which of the source's rules a mirror creates here, as
MirrorMaker 2 does (KIP-382), and which it removes again.

Rules for the literal name of a mirrored topic are created for its name here. Rules that allow WRITE
are left out, and a rule that allows ALL is created as one that allows READ: a copy has no
producers. Rules that deny are created as they are. Rules with prefixes are left out, because they
are about other topics, too.

A rule that a mirror has created is removed when the source no longer has it, while the mirror still
has the rule's topic. The id of such a rule follows from the mirror's name and the rule, so that
every later controller knows it as the mirror's own. Others' rules have random ids, and stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid5

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.static.primitive import i8
from msgspec.structs import astuple, replace

from ottla_broker.security.acl_descriptions import read_entries
from ottla_broker.security.acls import ANY, AccessControlEntry, PatternType, Permission, find_problem
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

_ID_NAMESPACE: Final = UUID("7f1f4a0e-5d0b-4c53-9a53-6f1d5a1c2b60")  # of the rules that mirrors create; never changed


@dataclass(frozen=True, slots=True)
class AclChanges:
    """`to_create`: by id. `to_delete`: ids."""

    to_create: Mapping[UUID, AccessControlEntry]
    to_delete: tuple[UUID, ...]

    def __bool__(self) -> bool:
        return bool(self.to_create or self.to_delete)


def plan_acl_sync(
    mirror: str,
    at_source: Iterable[AccessControlEntry],
    at_target: Mapping[UUID, AccessControlEntry],
    topics: Mapping[str, str],
) -> AclChanges:
    """Plans the changes of rules at the target. `mirror`: its name. `at_target`: all rules there,
    by id. `topics`: mirrored topics, name at the source → name at the target.
    """
    desired = dict.fromkeys(entry for it in at_source if (entry := _target_entry(it, topics)) is not None)
    existing, mirrored = set(at_target.values()), set(topics.values())
    return AclChanges(
        {copied_entry_id(mirror, it): it for it in desired if it not in existing},
        tuple(
            id_
            for id_, it in at_target.items()
            if it.resource_name in mirrored and it not in desired and id_ == copied_entry_id(mirror, it)
        ),
    )


def copied_entry_id(mirror: str, entry: AccessControlEntry) -> UUID:
    """The id of a rule that this mirror creates."""
    return uuid5(_ID_NAMESPACE, "\0".join((mirror, *map(str, astuple(entry)))))


def _target_entry(entry: AccessControlEntry, topics: Mapping[str, str]) -> AccessControlEntry | None:
    """The rule here for a rule of the source; None if there is none."""
    if (entry.resource_type, entry.pattern_type) != (ResourceType.topic, PatternType.LITERAL):
        return None
    if (name := topics.get(entry.resource_name)) is None or find_problem(entry) is not None:
        return None
    operation = entry.operation
    if entry.permission == Permission.ALLOW:
        if operation == Operation.write:
            return None
        operation = int(Operation.read) if operation == Operation.all else operation
    return replace(entry, resource_name=name, operation=operation)


async def fetch_topic_acls(source: Client) -> list[AccessControlEntry]:
    """The rules of the source for literal names of topics. Raises KafkaError, OSError,
    TimeoutError.
    """
    response: DescribeAclsResponse = await source.send(
        DescribeAclsRequest(
            resource_type_filter=i8(ResourceType.topic),
            resource_name_filter=None,
            pattern_type_filter=i8(PatternType.LITERAL),
            principal_filter=None,
            host_filter=None,
            operation=i8(ANY),
            permission_type=i8(ANY),
        )
    )
    if response.error_code is not ErrorCode.none:
        reason = response.error_message or response.error_code.name
        raise KafkaError(response.error_code, f"access rules cannot be read (sync.acls): {reason}")
    return read_entries(response)
