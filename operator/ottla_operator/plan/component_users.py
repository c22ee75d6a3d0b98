"""The User that a Pipeline or a Mirror connects as, where no listener of the Cluster is open. Pure.

The operator creates it with a generated password, and with the rules for what the resource reads
and writes. It belongs to the resource and is deleted with it. Where clients can log in by
certificates alone, it has a client certificate instead of the password.
"""

from collections.abc import Iterable
from typing import Final

from ottla_operator.plan.inter_broker_login import MECHANISM
from ottla_operator.plan.listener_certificates import has_authority
from ottla_operator.plan.listener_security import has_access_rules, is_open
from ottla_operator.plan.pipeline.topic_readiness import read_topics, written_topics
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

CERTIFICATE: Final = "TLS"
EXCLUSION: Final = "!"
WILDCARD: Final = "*"


def pipeline_user_name(pipeline: Pipeline) -> str:
    return f"pipeline-{pipeline.name}"


def mirror_user_name(mirror: Mirror) -> str:
    return f"mirror-{mirror.name}"


def needs_pipeline_user(pipeline: Pipeline, cluster: Cluster) -> bool:
    """True if the operator creates the pipeline's User. With `userRef` it uses that one."""
    return pipeline.spec.user_ref is None and bool(_authentication(cluster))


def needs_mirror_user(mirror: Mirror, source: Cluster) -> bool:
    """True if the operator creates the User by which the target's brokers connect to the source."""
    spec = mirror.spec.source
    return spec.tls is None and spec.credentials is None and bool(_authentication(source))


def _authentication(cluster: Cluster) -> str:
    """The authentication of a User that the operator creates: a SCRAM mechanism, or TLS; empty if
    clients can go without TLS and login, or if such a User could log in by neither.
    """
    if any(map(is_open, cluster.listeners)):
        return ""
    accepted = {it.authentication for it in cluster.listeners}
    if "SCRAM" in accepted:
        return MECHANISM
    return CERTIFICATE if CERTIFICATE in accepted and has_authority(cluster) else ""


def pipeline_user(pipeline: Pipeline, cluster: Cluster) -> Json:
    """The User that the pipeline connects as. Its rules allow reading the sources, committing
    offsets to the pipeline's consumer group, and writing the sinks in transactions, which may
    create the sinks' topics.
    """
    # A transaction commits the number of its batch, as an offset of the sink's topic.
    transactional = {it.topic for it in pipeline.spec.sinks if it.topic is not None and it.is_transactional}
    rules = [
        *(_rule(["Read"], "Topic", it) for it in sorted({*read_topics(pipeline), *transactional})),
        *(_rule(["Write", "Create"], "Topic", it) for it in written_topics(pipeline)),
        _rule(["Read"], "Group", pipeline.consumer_group),
    ]
    if transactional:
        rules += [
            _rule(["Write"], "TransactionalId", pipeline.transaction_prefix, is_prefix=True),
            _rule(["Read"], "Group", pipeline.transaction_prefix, is_prefix=True),
        ]
    authentication = _authentication(cluster) or MECHANISM
    return _user(pipeline_user_name(pipeline), pipeline.metadata.namespace, cluster, rules, authentication)


def mirror_user(mirror: Mirror, source: Cluster) -> Json:
    """The User that the mirror connects as. Its rules allow reading the topics that match, and
    describing the groups; where it copies access rules or users, also listing these. Kafka's rules
    have only names and prefixes, so the part of a pattern after its first `*` restricts nothing.
    """
    rules = [
        *_pattern_rules(mirror.topic_patterns, "Topic", ["Read", "DescribeConfigs"]),
        *_pattern_rules(mirror.spec.groups or (), "Group", ["Describe"]),
        *_pattern_rules(map(_user_pattern, mirror.spec.users or ()), "User", ["DescribeTokens"]),
    ]
    if mirror.spec.users or (mirror.spec.sync is not None and mirror.spec.sync.acls):
        rules.append({"allow": ["Describe"], "cluster": True})
    authentication = _authentication(source) or MECHANISM
    return _user(mirror_user_name(mirror), mirror.metadata.namespace, source, rules, authentication)


def _user_pattern(pattern: str) -> str:
    """The pattern for principals of users."""
    excluded = EXCLUSION if pattern.startswith(EXCLUSION) else ""
    return f"{excluded}User:{pattern.removeprefix(EXCLUSION)}"


def _pattern_rules(patterns: Iterable[str], type_: str, operations: list[str]) -> list[Json]:
    rules: list[Json] = []
    for pattern in dict.fromkeys(patterns):
        name, star, rest = pattern.removeprefix(EXCLUSION).partition(WILDCARD)
        if pattern.startswith(EXCLUSION):
            if not rest:  # another exclusion would deny more than it says
                rules.append(_rule(operations, type_, name, is_prefix=bool(star), effect="deny"))
        else:
            rules.append(_rule(operations, type_, name, is_prefix=bool(star)))
    return rules


def _rule(operations: list[str], type_: str, name: str, *, is_prefix: bool = False, effect: str = "allow") -> Json:
    resource = {"type": type_, "name": name or WILDCARD}
    if is_prefix and name:
        resource["pattern"] = "Prefixed"
    return {effect: operations, "resource": resource}


def _user(name: str, namespace: str, cluster: Cluster, rules: list[Json], authentication: str) -> Json:
    spec: Json = {"clusterRef": {"name": cluster.name}, "authentication": {"type": authentication}}
    if has_access_rules(cluster):
        spec["acls"] = rules
    return {
        "apiVersion": API_VERSION,
        "kind": "User",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
