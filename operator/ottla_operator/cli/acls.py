"""`ottla acls`."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from ottla_broker.security.acl_explanation import Explanation, explain
from ottla_broker.security.acl_index import Verdict
from ottla_broker.security.acls import ANY, WILDCARD, AccessControlEntry, AclFilter, PatternType, Permission
from ottla_broker.security.authorizer import CLUSTER, OPERATIONS, Operation, Resource, ResourceType
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat, Yes, new_app
from ottla_operator.cli.output import print_document, print_fields, print_rows
from ottla_operator.formatting import format_count
from ottla_operator.kafka import acls
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import describe_cluster
from ottla_operator.plan.acl_patterns import (
    camel_case,
    describe_entry,
    format_pattern,
    parse_pattern,
    parse_principal,
)

app = new_app("Manage access rules.")

COLUMNS: Final = {
    "principal": "PRINCIPAL",
    "host": "HOST",
    "permission": "PERMISSION",
    "operation": "OPERATION",
    "resource": "RESOURCE",
    "name": "NAME",
}
PATTERN_HELP: Final = "; NAME* is a prefix, * stands for all."
PrincipalOption = Annotated[
    str | None, typer.Option("--principal", "-p", metavar="USER", help="User, or a principal such as User:CN=alice.")
]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Client address of the rule. Default: any.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help=f"Topic{PATTERN_HELP}")]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="NAME", help=f"Consumer group{PATTERN_HELP}")]
TransactionalIdOption = Annotated[
    str | None, typer.Option("--transactional-id", metavar="NAME", help=f"Transactional id{PATTERN_HELP}")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
LiteralOption = Annotated[
    bool, typer.Option("--literal", help="Names are taken as they are: a * at the end is part of the name.")
]


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resource pattern that `--topic`, `--group`, `--transactional-id` or `--cluster` names."""

    type: ResourceType
    name: str
    pattern_type: PatternType


@app.command("list")
def list_(
    principal: PrincipalOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    literal: LiteralOption = False,
    matching: Annotated[
        bool, typer.Option("--matching", help="Include rules with other patterns that apply to the named resource.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """List access rules."""
    pattern = _read_pattern(topic, group, transactional_id, cluster, literal=literal or matching)
    selected = _build_filter(principal, None, pattern, matching=matching)
    found = sorted(call_brokers(bootstrap, command_config, lambda it: acls.describe_acls(it, selected)), key=_order)
    print_rows([_row(it) for it in found], COLUMNS, output)


@app.command()
def add(
    principal: Annotated[
        str, typer.Option("--principal", "-p", metavar="USER", help="User, or a principal such as User:CN=alice.")
    ],
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="OPERATION,…", help="Operations to allow. Repeatable.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", metavar="OPERATION,…", help="Operations to deny. Repeatable.")
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    host: HostOption = None,
    literal: LiteralOption = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Add access rules.

    Example: ottla acls add --principal alice --allow read,write --topic 'orders*'
    """
    pattern = _read_pattern(topic, group, transactional_id, cluster, literal=literal)
    if pattern is None:
        raise typer.BadParameter("name the resource of the rule: --topic, --group, --transactional-id or --cluster")
    requested = [(Permission.ALLOW, it) for it in _read_operations(allow, pattern.type)]
    requested += [(Permission.DENY, it) for it in _read_operations(deny, pattern.type)]
    if not requested:
        raise typer.BadParameter("give --allow or --deny with operations")
    entries = [
        AccessControlEntry(
            pattern.type,
            pattern.name,
            pattern.pattern_type,
            str(parse_principal(principal)),
            host or WILDCARD,
            operation,
            permission,
        )
        for permission, operation in requested
    ]

    async def work(client: KafkaClient) -> None:
        for error in (await acls.create_acls(client, entries)).values():
            raise error

    call_brokers(bootstrap, command_config, work)
    for entry in entries:
        print(f"rule added: {describe_entry(entry)}")


@app.command()
def remove(
    principal: PrincipalOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    operation: Annotated[
        str | None, typer.Option("--operation", metavar="OPERATION", help="Only rules of this operation.")
    ] = None,
    host: HostOption = None,
    literal: LiteralOption = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Remove access rules of a principal, a resource, or both."""
    pattern = _read_pattern(topic, group, transactional_id, cluster, literal=literal)
    if principal is None and pattern is None:
        raise typer.BadParameter("name the rules: --principal, --topic, --group, --transactional-id or --cluster")
    code = ANY if operation is None else _read_operations([operation], pattern.type if pattern else None)[0]
    selected = _build_filter(principal, host, pattern, operation=code)
    found = sorted(call_brokers(bootstrap, command_config, lambda it: acls.describe_acls(it, selected)), key=_order)
    if found and not yes:
        print(*map(describe_entry, found), sep="\n")
        typer.confirm(f"Remove {format_count(len(found), 'rule')}?", abort=True)
    filters = [acls.filter_for_entry(it) for it in found]
    call_brokers(bootstrap, command_config, lambda client: acls.delete_acls(client, filters))
    for entry in found:
        print(f"rule removed: {describe_entry(entry)}")
    if not found:
        print("no rule matches")


@app.command("explain")
def explain_(
    principal: Annotated[
        str, typer.Option("--principal", "-p", metavar="USER", help="User, or a principal such as User:CN=alice.")
    ],
    operation: Annotated[str, typer.Option("--operation", metavar="OPERATION", help="Kafka operation, such as read.")],
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Topic.")] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="Consumer group.")] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="NAME", help="Transactional id.")
    ] = None,
    cluster: ClusterOption = False,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address of the client.")] = "127.0.0.1",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show which access rule allows or denies an operation.

    Exits with 1 if the operation is refused.

    Example: ottla acls explain --principal alice --operation write --topic orders
    """
    pattern = _read_pattern(topic, group, transactional_id, cluster, literal=True)
    if pattern is None:
        raise typer.BadParameter("name a resource: --topic, --group, --transactional-id or --cluster")
    client_principal, resource = parse_principal(principal), Resource(pattern.type, pattern.name)
    (code,) = _read_operations([operation], pattern.type)

    async def work(client: KafkaClient) -> tuple[acls.AuthorizationConfig, Explanation]:
        config = await acls.describe_authorization(client, (await describe_cluster(client)).brokers[0].id)
        entries = await acls.describe_acls(client) if config.is_enabled else []
        return config, explain(entries, client_principal, host, code, resource)

    config, explanation = call_brokers(bootstrap, command_config, work)
    allowed, reason = _decide(config, explanation, str(client_principal), (resource.kind, code))
    principals = (str(client_principal), f"{client_principal.kind}:{WILDCARD}")
    applicable = [it for it in explanation.matching if it.principal in principals]
    document: dict[str, Any] = {
        "principal": str(client_principal),
        "host": host,
        "operation": camel_case(code.name),
        "resource": f"{camel_case(pattern.type.name)}:{pattern.name}",
        "decision": "allowed" if allowed else "refused",
        "reason": reason,
        "rules": [_row(it) | {"decides": it == explanation.deciding} for it in sorted(applicable, key=_order)],
    }
    if output is not OutputFormat.table:
        print_document(document, output)
    else:
        print_fields({key: value for key, value in document.items() if key != "rules"})
        if applicable:
            print()
            print_rows(document["rules"], {**COLUMNS, "decides": "DECIDES"}, output)
    if not allowed:
        raise typer.Exit(1)


def _decide(
    config: acls.AuthorizationConfig, explanation: Explanation, principal: str, right: tuple[ResourceType, Operation]
) -> tuple[bool, str]:
    """Returns whether the brokers allow the operation, and the reason. `right`: the type of the
    resource, and the operation.
    """
    if not config.is_enabled:
        return True, "the brokers have no authorizer (authorizer.class.name): every request is allowed"
    if principal in config.super_users:
        return True, f"{principal} is one of super.users"
    if right in config.restricted.get(principal, ()):
        return True, f"restricted.super.users allows it to {principal}"
    if explanation.deciding is not None:
        return explanation.verdict is Verdict.ALLOWED, f"rule: {describe_entry(explanation.deciding)}"
    if explanation.verdict is Verdict.NO_MATCHING_ENTRY:
        if config.allow_if_no_acl:
            return True, "no rule matches the resource, and allow.everyone.if.no.acl.found is true"
        return False, "no rule matches the resource"
    return False, f"no rule that matches the resource allows this operation to {principal} from this host"


def _read_pattern(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool, *, literal: bool
) -> ResourcePattern | None:
    """The pattern that the options name; None if they name none. Raises typer.BadParameter."""
    named = {
        ResourceType.topic: topic,
        ResourceType.group: group,
        ResourceType.transactional_id: transactional_id,
        ResourceType.cluster: CLUSTER.name if cluster else None,
    }
    given = [(type_, name) for type_, name in named.items() if name is not None]
    if len(given) > 1:
        raise typer.BadParameter("--topic, --group, --transactional-id and --cluster exclude each other")
    if not given:
        return None
    type_, text = given[0]
    if not text:
        raise typer.BadParameter(f"--{type_.name.replace('_', '-')} is empty")
    name, pattern_type = (text, PatternType.LITERAL) if literal else parse_pattern(text)
    return ResourcePattern(type_, name, pattern_type)


def _build_filter(
    principal: str | None,
    host: str | None,
    pattern: ResourcePattern | None,
    *,
    operation: int = ANY,
    matching: bool = False,
) -> AclFilter:
    pattern_type = pattern.pattern_type if pattern else PatternType.ANY
    return AclFilter(
        pattern.type if pattern else ANY,
        pattern.name if pattern else None,
        PatternType.MATCH if matching and pattern else pattern_type,
        None if principal is None else str(parse_principal(principal)),
        host,
        operation,
        ANY,
    )


def _read_operations(texts: list[str] | None, resource_type: ResourceType | None) -> list[Operation]:
    """Parses operations, given by name in any case, with or without `-` and `_`. `resource_type`:
    the type that they must apply to; None for any. Raises typer.BadParameter.
    """
    applicable = OPERATIONS[resource_type] if resource_type is not None else Operation
    allowed = [Operation.all, *(it for it in applicable if it != Operation.all)]
    by_name = {it.name.replace("_", ""): it for it in allowed}
    found = list[Operation]()
    for name in [part for text in texts or [] for part in text.split(",")]:
        if (operation := by_name.get(name.strip().lower().replace("-", "").replace("_", ""))) is None:
            names = ", ".join(camel_case(it.name) for it in allowed)
            subject = "" if resource_type is None else f" of a {resource_type.name.replace('_', ' ')}"
            raise typer.BadParameter(f"{name.strip()!r} is not an operation{subject}; allowed: {names}")
        found.append(operation)
    return found


def _row(entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "permission": camel_case(Permission(entry.permission).name.lower()),
        "operation": camel_case(Operation(entry.operation).name),
        "resource": camel_case(ResourceType(entry.resource_type).name),
        "name": format_pattern(entry.resource_name, entry.pattern_type),
        "pattern": camel_case(PatternType(entry.pattern_type).name.lower()),
    }


def _order(entry: AccessControlEntry) -> tuple[object, ...]:
    return entry.principal, entry.resource_type, entry.resource_name, entry.operation, entry.permission, entry.host
