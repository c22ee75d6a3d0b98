"""Schemas: changes of a subject, owners, references, readers, refusals, and the connection to the
registry."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_operator.plan.conditions import Ready, Reconciling, Stalled
from ottla_operator.plan.registry_access import RegistryAccess, registry_security
from ottla_operator.plan.schema_readers import SubjectReader, find_readers
from ottla_operator.plan.schemas import (
    DesiredSchema,
    ObservedSubject,
    RegisteredVersion,
    RegisterSchema,
    SchemaChange,
    SchemaResource,
    SetCompatibility,
    describe_change,
    desired_schema,
    evaluate_refusal,
    evaluate_schema,
    find_obstacle,
    order_by_references,
    plan_schema_changes,
    referenced_names,
    subject_owners,
)
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.schema_resource import Schema
from tests.unit.operator import samples

LEVELS = st.sampled_from(["NONE", "BACKWARD", "FULL_TRANSITIVE"])
VERSIONS = st.integers(1, 9)
NAMES = st.sampled_from(["a", "b", "c", "d"])
DESIRED = DesiredSchema("flights-value", "AVRO", '"string"')


@st.composite
def observed_subjects(draw: st.DrawFn) -> ObservedSubject:
    version = draw(st.none() | VERSIONS)
    if version is None:
        return ObservedSubject(draw(LEVELS))
    return ObservedSubject(draw(LEVELS), version, draw(VERSIONS), version + draw(st.integers(0, 2)))


def apply(observed: ObservedSubject, change: SchemaChange) -> ObservedSubject:
    """A model of a registry that accepts every change."""
    match change:
        case SetCompatibility():
            return replace(observed, level=change.level)
        case RegisterSchema():
            assert observed.version is None, "a schema that the subject has is not registered again"
            return replace(observed, version=3, id=7, latest=3)


@given(level=st.none() | LEVELS, observed=observed_subjects())
def test_after_its_changes_nothing_is_left_and_the_schema_is_ready(
    level: str | None, observed: ObservedSubject
) -> None:
    changes = plan_schema_changes(DESIRED, level, observed)
    assert [it for it in (SetCompatibility, RegisterSchema) if it in map(type, changes)] == [*map(type, changes)], (
        "the level is set before the schema is registered"
    )
    before = observed
    for change in changes:
        observed = apply(observed, change)
    assert plan_schema_changes(DESIRED, level, observed) == ()
    assert observed.level == (before.level if level is None else level), "a level that is not set is not changed"
    assert isinstance(evaluate_schema("flights-value", observed, ()), Ready)
    assert isinstance(evaluate_schema("flights-value", before, changes), Reconciling if changes else Ready)


def resource(name: str, *references: str, created: str = "", **spec: Any) -> SchemaResource:
    listed = [{"name": it, "schemaRef": {"name": it}} for it in references]
    body = samples.schema(name, **spec, **({"references": listed} if listed else {}))
    body["metadata"]["creationTimestamp"] = created
    return StoredResource.parse(Schema, body)


@given(graph=st.dictionaries(NAMES, st.sets(NAMES)))
def test_each_schema_comes_after_those_that_it_refers_to(graph: dict[str, set[str]]) -> None:
    ordered, cyclic = order_by_references(resource(name, *sorted(to)) for name, to in graph.items())
    assert sorted(it.name for it in ordered) == sorted(graph)
    seen: set[str] = set()
    for it in ordered:
        if it.name not in cyclic:
            assert referenced_names(it) & graph.keys() <= seen
        seen.add(it.name)
    assert all(graph[name] & cyclic for name in cyclic), "each cyclic schema refers to a cyclic one"


def test_a_schema_waits_for_those_it_refers_to_and_refers_to_their_versions() -> None:
    it = resource("order", "address")
    obstacle = find_obstacle(it, {}, (), {})
    assert isinstance(obstacle, Reconciling) and "address" in obstacle.message
    registered = {"address": RegisteredVersion("address-value", 4)}
    assert find_obstacle(it, {}, (), registered) is None
    assert it.parsed is not None
    found = desired_schema(it.parsed, "text", registered)
    assert found.to_request() == {
        "schema": "text",
        "schemaType": "AVRO",
        "references": [{"name": "address", "subject": "address-value", "version": 4}],
    }


def test_a_cycle_is_a_problem_of_the_spec() -> None:
    ordered, cyclic = order_by_references([resource("a", "b"), resource("b", "a")])
    found = find_obstacle(ordered[0], {}, cyclic, {})
    assert isinstance(found, Stalled) and "a, b" in found.message


def test_the_older_of_two_resources_owns_the_subject() -> None:
    older, younger = resource("z", created="1", subject="s"), resource("a", created="2", subject="s")
    owners = subject_owners([younger, older])
    assert find_obstacle(older, owners, (), {}) is None
    assert find_obstacle(younger, owners, (), {}) == Stalled("NameConflict", "subject s belongs to the older Schema z")


def test_a_tenant_begins_the_subject() -> None:
    assert Schema.parse(samples.schema("orders-value", tenant="acme")).subject == "acme.orders-value"
    assert Schema.parse(samples.schema("x", subject="Orders-value")).subject == "Orders-value"


def registry_pipeline(name: str, state: str, type_: str = "avro", **reference: Any) -> Json:
    source = {"topic": "flights", "format": {"type": type_, "schemaRef": reference}}
    return {**samples.pipeline(name, sources={"flights": source}), "status": {"state": state}}


def test_readers_are_the_running_pipelines_whose_sources_have_the_subject() -> None:
    pipelines = [
        registry_pipeline("b", "Running", "json"),
        registry_pipeline("a", "Failing", version=2),
        registry_pipeline("stopped", "Suspended"),
        registry_pipeline("other", "Running", subject="other"),
        {**samples.pipeline("json"), "status": {"state": "Running"}},
        samples.pipeline("new"),
    ]
    assert find_readers("flights-value", "demo", pipelines) == [
        SubjectReader("a", "flights", 2),
        SubjectReader("b", "flights"),
    ]
    assert find_readers("flights-value", "another", pipelines) == []


def test_pipelines_that_decode_protobuf_json_and_keys_are_readers_too() -> None:
    ddl = {"type": "json", "schema": "a INT"}
    sources = {
        "proto": {"topic": "p", "format": {"type": "protobuf", "schemaRef": {}}},
        "json": {"topic": "j", "format": {"type": "json", "schemaRef": {"version": 3}}},
        "plain": {"topic": "j", "format": ddl},
        "keyed": {"topic": "k", "format": ddl, "key": "k", "keyFormat": {"type": "avro", "schemaRef": {}}},
    }
    pipelines = [{**samples.pipeline("a", sources=sources), "status": {"state": "Running"}}]
    found = [find_readers(it, "demo", pipelines) for it in ("p-value", "j-value", "k-key", "k-value")]
    assert found == [
        [SubjectReader("a", "proto")],
        [SubjectReader("a", "json", 3)],
        [SubjectReader("a", "keyed")],
        [],
    ]


READERS = [SubjectReader("late", "flights", 2)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (409, "IncompatibleSchema"),
        (40901, "IncompatibleSchema"),
        (42201, "InvalidSchema"),
        (42205, "RejectedByRegistry"),
        (40301, "RejectedByRegistry"),
        (401, "RejectedByRegistry"),
        (50003, "RetryingAfterError"),
        (503, "RetryingAfterError"),
        (40401, "RetryingAfterError"),
    ],
)
def test_refusals_stall_the_schema_unless_they_are_temporary(code: int, expected: str) -> None:
    found = evaluate_refusal(code, "because", "flights-value", READERS)
    assert found.reason == expected
    assert found.message.endswith("because")
    assert isinstance(found, Reconciling) == (expected == "RetryingAfterError")
    assert ("late (source flights, version 2)" in found.message) == (expected == "IncompatibleSchema")


def test_the_event_of_a_new_version_names_the_pipelines_that_read_an_earlier_one() -> None:
    change = RegisterSchema(DESIRED)
    assert "late" not in describe_change(change, ObservedSubject("FULL", 1, 1, 1), READERS)
    message = describe_change(change, ObservedSubject("FULL", 2, 5, 2), READERS)
    assert message == (
        "subject flights-value: version 2 has id 5; running Pipelines read earlier versions (those listed without a "
        "version, until they restart): late (source flights, version 2)"
    )


OPERATOR = ClientSecurity("SASL_PLAINTEXT").with_login("SCRAM-SHA-512", "ottla-operator", "secret")
PLAIN = {"name": "plain", "port": 9092}
SCRAM = {"name": "scram", "port": 9094, "authentication": "SCRAM"}
SECURE = {"name": "tls", "port": 9095, "tls": True}


@pytest.mark.parametrize(
    ("listeners", "operator", "url", "login"),
    [
        ([PLAIN], UNSECURED, "http://a:8081", ""),
        ([PLAIN, SCRAM], UNSECURED, "http://a:8081", ""),
        ([SCRAM], OPERATOR, "http://a:8081", "ottla-operator:secret"),
        ([SECURE], UNSECURED, "https://a:8081", ""),
        ([{**SCRAM, "tls": True}], OPERATOR, "https://a:8081", "ottla-operator:secret"),
    ],
)
def test_the_operator_connects_as_the_listener_of_the_registry_requires(
    listeners: list[Json], operator: ClientSecurity, url: str, login: str
) -> None:
    cluster = Cluster.parse(samples.cluster(listeners=listeners, schemaRegistry={}))
    security = registry_security(cluster, operator, "", "registry", is_loopback=True)
    assert isinstance(security, ClientSecurity)
    access = RegistryAccess(["a:8081"], security)
    assert (access.urls, access.login, security.server_name) == ([url], login, "registry")


@pytest.mark.parametrize(
    ("registry", "message"),
    [({"listener": "scram"}, "no login for listener scram"), ({"listener": "absent"}, "no listener absent")],
)
def test_a_registry_that_the_operator_cannot_use_is_named(registry: Json, message: str) -> None:
    cluster = Cluster.parse(samples.cluster(listeners=[PLAIN, SCRAM], schemaRegistry=registry))
    found = registry_security(cluster, UNSECURED, "", "")
    assert isinstance(found, str) and message in found


def test_the_operators_password_is_not_sent_over_http() -> None:
    for tls in (False, True):
        cluster = Cluster.parse(samples.cluster(listeners=[{**SCRAM, "tls": tls}], schemaRegistry={}))
        assert isinstance(registry_security(cluster, OPERATOR, "", ""), ClientSecurity) == tls
