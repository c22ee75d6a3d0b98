"""Access rules of mirrored topics: which of the source's rules a mirror creates here, as
MirrorMaker 2 does (KIP-382).

Rules for the literal name of a mirrored topic are created for its name here. What allows WRITE is
left out, and what allows ALL allows READ: a copy has no producers. Denials are created as they are.
Rules with prefixes are left out, because they are about other topics, too. No rule is ever removed:
one that is removed at the source stays here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.static.primitive import i8

from ottla_broker.security.acls import ANY, AccessControlEntry, PatternType, Permission, described_entries, find_problem
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError


def entries_to_create(
    at_source: Iterable[AccessControlEntry], at_target: Iterable[AccessControlEntry], topics: Mapping[str, str]
) -> list[AccessControlEntry]:
    """Those that are missing here. `topics`: mirrored ones, name there → name here."""
    existing = set(at_target)
    created = dict.fromkeys(
        entry for it in at_source if (entry := _target_entry(it, topics)) is not None and entry not in existing
    )
    return list(created)


def _target_entry(entry: AccessControlEntry, topics: Mapping[str, str]) -> AccessControlEntry | None:
    """None if the entry is not created here."""
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
    return described_entries(response)
