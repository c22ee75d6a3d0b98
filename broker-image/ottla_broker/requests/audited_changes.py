"""The audit events of requests that change access rules, credentials, quotas, configs, topics and
features: one event for each rule, user, quota entity, resource, topic or feature in the request.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ottla_broker.requests.config_resources import ConfigResource
from ottla_broker.requests.context import AUTHORIZATION_ERRORS, DONE, RequestContext
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.authorizer import CLUSTER, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

CLUSTER_NAME: Final = CLUSTER.name
CONFIG_RESOURCES: Final = {kind.value: kind.name for kind in ConfigResource}
REPORTS: Final = (ConfigResource.PIPELINE, ConfigResource.ROLL)
"""Resources of reports, which are repeated every few seconds and change nothing."""
RESOURCE_TYPES: Final = {kind.value: kind.name.upper() for kind in ResourceType}


class Change(NamedTuple):
    """One change of a request. `kind`, `name`: of the changed resource. `code`: its result."""

    operation: str
    kind: str
    name: str
    code: ErrorCode


def record_changes(ctx: RequestContext, request: Any, response: Any) -> None:
    """Records the changes of a request, successful and failed ones. Denied changes are recorded by
    the authorization check instead. Requests that only validate are not recorded.
    """
    if (changes := AUDITED.get(ctx.api_key)) is None or getattr(request, "validate_only", False):
        return
    for change in changes(request, response):
        if change.code not in AUTHORIZATION_ERRORS.values():
            result = DONE if change.code is ErrorCode.none else change.code.name.upper()
            ctx.record_audit(change.operation, AuditedResource(change.kind, change.name), result)


def _topics(operation: str, results: str) -> Callable[[Any, Any], Iterator[Change]]:
    def find(request: Any, response: Any) -> Iterator[Change]:
        for result in getattr(response, results):
            yield Change(operation, "TOPIC", str(result.name), result.error_code)

    return find


def _configs(request: Any, response: Any) -> Iterator[Change]:
    for result in response.responses:
        if result.resource_type in REPORTS:
            continue
        kind = CONFIG_RESOURCES.get(result.resource_type, str(result.resource_type))
        yield Change("ALTER_CONFIGS", kind, result.resource_name, result.error_code)


def _created_acls(request: Any, response: Any) -> Iterator[Change]:
    for acl, result in zip(request.creations, response.results, strict=True):
        yield Change("CREATE_ACL", *_resource(acl), result.error_code)


def _deleted_acls(request: Any, response: Any) -> Iterator[Change]:
    for result in response.filter_results:
        if result.error_code is not ErrorCode.none:
            yield Change("DELETE_ACL", "CLUSTER", CLUSTER_NAME, result.error_code)
        for acl in result.matching_acls:
            yield Change("DELETE_ACL", *_resource(acl), acl.error_code)


def _resource(acl: Any) -> tuple[str, str]:
    return RESOURCE_TYPES.get(acl.resource_type, str(acl.resource_type)), f"{acl.resource_name} for {acl.principal}"


def _credentials(request: Any, response: Any) -> Iterator[Change]:
    for result in response.results:
        yield Change("ALTER_CREDENTIALS", "USER", result.user, result.error_code)


def _quotas(request: Any, response: Any) -> Iterator[Change]:
    for entry in response.entries:
        parts = [f"{part.entity_type} {part.entity_name or '<default>'}" for part in entry.entity]
        yield Change("ALTER_QUOTAS", "CLIENT_QUOTA", ", ".join(parts), entry.error_code)


def _features(request: Any, response: Any) -> Iterator[Change]:
    for update in request.feature_updates:
        yield Change("ALTER", "FEATURE", f"{update.feature} to {update.max_version_level}", response.error_code)


AUDITED: Final[dict[int, Callable[[Any, Any], Iterator[Change]]]] = {
    ApiKey.CREATE_TOPICS: _topics("CREATE", "topics"),
    ApiKey.DELETE_TOPICS: _topics("DELETE", "responses"),
    ApiKey.CREATE_PARTITIONS: _topics("ALTER", "results"),
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _credentials,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.UPDATE_FEATURES: _features,
}
