"""The pages of access: rules (ACLs), why an operation is allowed or refused, users, and quotas."""

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import ALLOW_EVERYONE_IF_NO_ACL_FOUND, RESTRICTED_SUPER_USERS, SUPER_USERS
from ottla_broker.console.access_explanation import AuthorizerSettings, decide_access
from ottla_broker.console.paging import cut_page
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.topic_list import matches
from ottla_broker.security.acls import ANY, AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import CLUSTER, OPERATIONS, Operation, Resource, ResourceType
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.security.principal import parse_principal
from ottla_broker.security.scram import MECHANISMS
from ottla_broker.wire.api_keys import ApiKey

NO_AUTHORIZER: Final = "The brokers have no authorizer (authorizer.class.name): every request is allowed."
EXPLAINED_TYPES: Final = (ResourceType.topic, ResourceType.group, ResourceType.transactional_id, ResourceType.cluster)
MAX_THROTTLED: Final = 100
"""Rows of throttled clients that are shown."""
MECHANISM_NAMES: Final = {int(mechanism): name for name, mechanism in MECHANISMS.items()}


@dataclass(frozen=True, slots=True)
class RuleRow:
    """An access control entry as text."""

    principal: str
    host: str
    permission: str
    operation: str
    resource: str
    name: str
    pattern: str

    @classmethod
    def of(cls, entry: AccessControlEntry) -> "RuleRow":
        return cls(
            entry.principal,
            entry.host,
            format_code(Permission, entry.permission),
            format_code(Operation, entry.operation),
            format_code(ResourceType, entry.resource_type),
            entry.resource_name,
            format_code(PatternType, entry.pattern_type),
        )


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user with SCRAM credentials: mechanisms with their iterations. `rules`: the number of
    entries that name the user.
    """

    name: str
    credentials: tuple[tuple[str, int], ...]
    rules: int


@dataclass(frozen=True, slots=True)
class ThrottledRow:
    """A client that this broker has throttled. `key`: the quota's name. `limit`: 0 if it is no
    longer known. `count`: throttled responses or connections, and `seconds`: the sum of their
    throttle times, since the broker started. `over_s`: seconds until the client is within its quota
    again, 0 if it is.
    """

    key: str
    user: str
    client_id: str
    limit: float
    count: int
    seconds: float
    over_s: float


class AccessPages:
    """Users need, for each page, the rights for the request with which clients read the same."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def show_rules(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_ACLS)
        search, kind = page.text("search"), read_code(page, "type", ResourceType)
        words = search.lower().split()
        entries = [
            entry
            for entry in self._broker.image.acls.values()
            if kind in (ANY, entry.resource_type) and matches(f"{entry.principal} {entry.resource_name}", words)
        ]
        entries.sort(key=lambda it: (it.principal, it.resource_type, it.resource_name, it.operation))
        rules = cut_page(entries, page.integer("page", 1, at_least=1))
        template = "rule_rows.html" if page.wants_fragment else "rules.html"
        return page.render(
            template,
            rules=rules,
            rows=[RuleRow.of(one) for one in rules.rows],
            search=search,
            type=page.text("type"),
            types=[one.name for one in ResourceType],
            problem="" if self._broker.acl_authorizer is not None else NO_AUTHORIZER,
        )

    async def explain(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_ACLS)
        decision, principal = None, page.text("principal")
        if principal and self._broker.acl_authorizer is not None:
            kind = ResourceType(read_code(page, "type", ResourceType, ResourceType.topic))
            operation = Operation(read_code(page, "operation", Operation, Operation.read))
            if operation not in OPERATIONS[kind]:
                allowed = ", ".join(one.name for one in OPERATIONS[kind])
                raise PageError(400, f"operation={operation.name!r}: a {kind.name} has {allowed}")
            config = self._broker.config
            decision = decide_access(
                self._broker.image.acls.values(),
                AuthorizerSettings(
                    config(SUPER_USERS), config(RESTRICTED_SUPER_USERS), config(ALLOW_EVERYONE_IF_NO_ACL_FOUND)
                ),
                parse_principal(principal if ":" in principal else f"User:{principal}"),
                page.text("host") or "127.0.0.1",
                operation,
                CLUSTER if kind is ResourceType.cluster else Resource(kind, page.text("name")),
            )
        return page.render(
            "access_why.html",
            decision=decision,
            rows=[] if decision is None else [(RuleRow.of(it), it == decision.deciding) for it in decision.matching],
            query=page.http.query,
            types=[one.name for one in EXPLAINED_TYPES],
            operations=sorted({one.name for kind in EXPLAINED_TYPES for one in OPERATIONS[kind]}),
            problem="" if self._broker.acl_authorizer is not None else NO_AUTHORIZER,
        )

    async def show_users(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
        search, image = page.text("search"), self._broker.image
        words, credentials = search.lower().split(), defaultdict(list)
        for (name, mechanism), credential in sorted(image.scram_credentials.items()):
            credentials[name].append((MECHANISM_NAMES.get(mechanism, str(mechanism)), credential.iterations))
        names = [name for name in credentials if matches(name, words)]
        users = cut_page(names, page.integer("page", 1, at_least=1))
        shown = {f"User:{name}" for name in users.rows}
        rule_counts: dict[str, int] = defaultdict(int)
        for entry in image.acls.values():
            if entry.principal in shown:
                rule_counts[entry.principal] += 1
        rows = [UserRow(name, tuple(credentials[name]), rule_counts[f"User:{name}"]) for name in users.rows]
        template = "user_rows.html" if page.wants_fragment else "users.html"
        return page.render(template, users=users, rows=rows, search=search)

    async def show_quotas(self, page: PageRequest) -> web.Response:
        """The quotas of the cluster, and what this broker has throttled."""
        page.user.check(Operation.describe_configs, CLUSTER, ApiKey.DESCRIBE_CLIENT_QUOTAS)
        quotas = sorted((describe_entity(it), values) for it, values in self._broker.image.client_quotas.items())
        shown = cut_page(quotas, page.integer("page", 1, at_least=1))
        throttled = [
            ThrottledRow(*usage, limit, totals.count, totals.seconds, over_s)
            for usage, totals, limit, over_s in self._broker.client_quotas.describe_throttled()
        ]
        throttled.sort(key=lambda it: (-it.over_s, -it.seconds))
        return page.render(
            "quotas.html", quotas=shown, throttled=throttled[:MAX_THROTTLED], throttled_count=len(throttled)
        )


def format_code(kind: type[IntEnum], code: int) -> str:
    """The code's name as Kafka's tools write it, such as DESCRIBE_CONFIGS; digits for an unknown
    one.
    """
    return kind(code).name.upper() if code in list(kind) else str(code)


def read_code(page: PageRequest, name: str, kind: type[IntEnum], default: int = ANY) -> int:
    """The code that a parameter of the query names; `default` without one. Raises PageError."""
    text = page.text(name)
    if not text:
        return default
    if text not in kind.__members__:
        raise PageError(400, f"{name}={text!r}: expected {', '.join(kind.__members__)}")
    return int(kind[text])


def describe_entity(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
