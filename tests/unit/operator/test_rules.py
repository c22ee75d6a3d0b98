"""Every rule gives the same result in CEL and in Python, and resources are validated with readable
problems.
"""

from copy import deepcopy
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from ottla_operator.resources import validation
from ottla_operator.resources.crds import KINDS
from ottla_operator.resources.model import Model, Rule, Transition
from ottla_operator.resources.schema import models_within
from tests.unit.operator import samples

TLS = {"tls": True}
PLAIN = {"name": "a", "port": 1}
SOURCE = {"topic": "t", "format": {"type": "raw"}}

# Model → valid and invalid objects: every rule of the model holds for one and fails for another.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "TopicSpec": [
        {"topicName": "."},
        {"topicName": "a"},
        {"tenant": "a", "topicName": "b" * 247},
        {"tenant": "a", "topicName": "b" * 248},
        {},
    ],
    "Listener": [
        {**PLAIN, "authentication": "TLS"},
        {**PLAIN, "authentication": "TLS", **TLS},
        {**PLAIN, "nodePort": 3},
        {**PLAIN, "nodePort": 3, "type": "NodePort"},
        {**PLAIN, "nodePort": 3, "type": "Internal"},
    ],
    "ClusterSpec": [
        {"version": "1", "image": "x"},
        {"image": "x"},
        {"listeners": [{**PLAIN, **TLS}]},
        {"listeners": [{**PLAIN, **TLS}], "tls": {"secretRef": {"name": "x"}}},
        {"listeners": [PLAIN, {"name": "b", "port": 1}]},
        {"listeners": [PLAIN, {"name": "b", "port": 2}]},
        {"authorization": {"type": "ACL"}},
        {"authorization": {"type": "ACL"}, "listeners": [PLAIN]},
        {"authorization": {"type": "ACL"}, "listeners": [{**PLAIN, "authentication": "SCRAM"}, {**PLAIN, "port": 2}]},
        {"authorization": {"type": "ACL"}, "listeners": [{**PLAIN, "authentication": "SCRAM"}]},
        {"authorization": {"type": "None"}},
        {"console": {}},
        {"console": {"oidc": {}}},
        {"console": {"oidc": {}}, "listeners": [PLAIN, {**PLAIN, "port": 2, "authentication": "None"}]},
        {"console": {"oidc": {}}, "listeners": [PLAIN, {**PLAIN, "port": 2, "authentication": "SCRAM"}]},
        {"brokersPerNode": 2, "podTemplate": {"spec": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}}},
        {
            "brokersPerNode": 2,
            "podTemplate": {"spec": {"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname"}]}},
        },
        {"restartAt": "2026-01-31T12:00:00Z"},
        {"restartAt": "2026-13-31T12:00:00Z"},
        {"rotatePasswordsAt": "2026-01-31T12:00:00Z"},
        {"rotatePasswordsAt": "2026-13-31T12:00:00Z"},
        {},
    ],
    "Console": [
        {"oidc": {"issuer": "https://a", "clientId": "a"}},
        {"oidc": {"issuer": "https://a", "clientId": "a"}, "enabled": True},
        {"oidc": {"issuer": "https://a", "clientId": "a"}, "enabled": False},
        {"enabled": False},
    ],
    "OidcLogin": [
        {"issuer": "https://a", "clientId": "a"},
        {"issuer": "https://a", "clientId": "a", "scope": "openid"},
        {"issuer": "https://a", "clientId": "a", "scope": "email openid profile"},
        {"issuer": "https://a", "clientId": "a", "scope": "email openid2"},
        {"issuer": "https://a", "clientId": "a", "caSecretRef": {"name": "a"}},
        {"issuer": "http://a", "clientId": "a", "caSecretRef": {"name": "a"}},
    ],
    "UserSpec": [
        {"tenant": "a", "acls": [{"allow": ["Read"], "cluster": True}]},
        {"tenant": "a", "acls": [{"allow": ["Read"], "resource": {"type": "Cluster"}}]},
        {"tenant": "a", "acls": [{"allow": ["Read"], "resource": {"type": "Topic", "name": "a"}}]},
        {"acls": [{"allow": ["Read"], "cluster": True}]},
        {"tenant": "a", "userName": "CN=b"},
        {"userName": "CN=b"},
        {},
    ],
    "Tls": [
        {},
        {"issuer": "Internal"},
        {"secretRef": {"name": "a"}},
        {"secretRef": {"name": "a"}, "issuer": "Internal"},
        {"secretRef": {"name": "a"}, "certificateValidity": "1d"},
        {"issuer": "Internal", "certificateValidity": "1m"},
        {"issuer": "Internal", "certificateValidity": "1d", "authorityValidity": "1h"},
    ],
    "Authentication": [
        {"type": "TLS", "passwordFrom": {"name": "a", "key": "b"}},
        {"type": "External", "passwordFrom": {"name": "a", "key": "b"}},
        {"type": "TLS", "overlap": "1h"},
        {"type": "SCRAM-SHA-256", "overlap": "1h"},
        {"type": "TLS"},
        {"type": "SCRAM-SHA-256", "passwordFrom": {"name": "a", "key": "b"}},
    ],
    "AclRule": [
        {"allow": ["Read"], "topic": "a"},
        {"allow": ["Read"], "topic": "a", "group": "b"},
        {"allow": ["Read"]},
        {"topic": "a"},
        {"deny": ["Read"], "allow": ["Write"], "topic": "a"},
        {"allow": ["Alter"], "cluster": True},
        {"allow": ["Alter"], "cluster": False},
    ],
    "AclResource": [
        {"type": "Cluster", "name": "x"},
        {"type": "Cluster"},
        {"type": "Topic"},
        {"type": "Topic", "name": "x"},
    ],
    "MirrorSource": [
        {},
        {"bootstrap": "a:1"},
        {"clusterRef": {"name": "x"}},
        {"bootstrap": "a:1", "clusterRef": {"name": "x"}},
    ],
    "MirrorSpec": [
        {"naming": "Prefix"},
        {"prefix": "x"},
        {"naming": "Identity", "prefix": "x"},
        {"naming": "Prefix", "prefix": "x"},
        {"naming": "Prefix", "prefix": "x", "sync": {"schemas": True}},
        {"offsets": "Appended", "sync": {"schemas": True}},
        {"offsets": "Appended", "sync": {"schemas": False}},
        {"offsets": "Identical", "naming": "Identity", "sync": {"schemas": True}},
        {"sync": {"configs": True}},
        {},
    ],
    "SchemaSource": [
        {},
        {"file": "a.avsc"},
        {"configMapKeyRef": {"name": "a", "key": "b"}},
        {"file": "a.avsc", "configMapKeyRef": {"name": "a", "key": "b"}},
    ],
    "SchemaReference": [
        {"name": "a"},
        {"name": "a", "subject": "s"},
        {"name": "a", "subject": "s", "version": 1},
        {"name": "a", "schemaRef": {"name": "b"}},
        {"name": "a", "schemaRef": {"name": "b"}, "version": 1},
        {"name": "a", "schemaRef": {"name": "b"}, "subject": "s", "version": 1},
    ],
    "SchemaSpec": [{}, {"schema": "x"}, {"schemaFrom": {"file": "a"}}, {"schema": "x", "schemaFrom": {"file": "a"}}],
    "SchemaRef": [{}, {"id": 1}, {"id": 1, "version": 1}, {"id": 1, "subject": "s"}, {"subject": "s", "version": 1}],
    "Format": [
        {"type": "raw", "schema": "x"},
        {"type": "raw", "schemaRef": {}},
        {"type": "raw"},
        {"type": "json"},
        {"type": "json", "schema": "x"},
        {"type": "json", "schemaRef": {}},
        {"type": "avro", "schemaRef": {}},
        {"type": "avro", "schemaRef": {}, "message": "M"},
        {"type": "protobuf", "schemaRef": {}, "message": "M"},
        {"type": "avro", "schema": "x", "schemaRef": {}},
    ],
    "SinkFormat": [
        {"type": "json"},
        {"type": "json", "subject": "s"},
        {"type": "json", "register": True},
        {"type": "avro", "subject": "s", "register": False},
        {"type": "avro", "register": False, "message": "M"},
        {"type": "protobuf", "register": False, "message": "M"},
        {"type": "protobuf", "register": True, "message": "M"},
        {"type": "protobuf", "message": "M"},
    ],
    "Source": [
        {**SOURCE, "watermark": {"column": "a", "delay": "1s"}, "mode": "table"},
        {**SOURCE, "watermark": {"column": "a", "delay": "1s"}, "mode": "stream"},
        {**SOURCE, "watermark": {"column": "a", "delay": "1s"}},
        {**SOURCE, "mode": "table"},
        {**SOURCE, "keyFormat": {"type": "raw"}},
        {**SOURCE, "keyFormat": {"type": "raw"}, "key": "k"},
        {**SOURCE, "startingOffsets": "2026-02-30T00:00:00Z"},
        {**SOURCE, "startingOffsets": "2026-02-28T00:00:00Z"},
    ],
    "TransformWithState": [{}, {"eventTime": "at"}, {"eventTime": "at", "timers": "eventTime"}],
    "Transform": [{"name": "a"}, {"name": "a", "sql": "x"}, {"name": "a", "sql": "x", "python": "a.py:b"}],
    "Lake": [
        {},
        {"key": "a"},
        {"key": "a", "format": {"type": "raw"}},
        {"key": "a", "format": {"type": "json", "schema": "b INT"}},
    ],
    "IcebergCatalog": [
        {"type": "hadoop"},
        {"type": "hadoop", "warehouse": "w"},
        {"type": "hadoop", "warehouse": "w", "uri": "jdbc:sqlite:x"},
        {"type": "jdbc", "warehouse": "w"},
        {"type": "jdbc", "warehouse": "w", "uri": "jdbc:sqlite:x"},
        {"type": "jdbc", "warehouse": "w", "uri": "http://x"},
        {"type": "rest"},
        {"type": "rest", "uri": "https://x"},
        {"type": "rest", "uri": "jdbc:sqlite:x"},
    ],
    "Jdbc": [
        {"url": "jdbc:postgresql://h/d"},
        {"url": "jdbc:postgresql://h/d?user=a"},
        {"url": "jdbc:postgresql://h/d?ssl=true&password=b"},
        {"url": "jdbc:postgresql://a:b@h/d"},
    ],
    "Sink": [
        {"from": "a"},
        {"from": "a", "jdbc": {}, "outputMode": "update"},
        {"from": "a", "delta": {}, "outputMode": "update", "key": ["a"]},
        {"from": "a", "topic": "t", "console": {}},
        {"from": "a", "console": {}, "key": ["a"]},
        {"from": "a", "topic": "t", "key": ["a"]},
        {"from": "a", "topic": "t", "key": ["a"], "deleteWhen": "a"},
        {"from": "a", "topic": "t", "key": ["a"], "outputMode": "append", "deleteWhen": "a"},
        {"from": "a", "topic": "t", "key": ["a"], "outputMode": "update", "deleteWhen": "a"},
        {"from": "a", "topic": "t", "outputMode": "update", "deleteWhen": "a"},
        {"from": "a", "console": {}, "outputMode": "update", "deleteWhen": "a"},
        {"from": "a", "topic": "t", "keyFormat": {"type": "json"}},
        {"from": "a", "topic": "t", "keyFormat": {"type": "json"}, "key": ["a"]},
        {"from": "a", "jdbc": {"url": "jdbc:x", "table": "t"}, "keyFormat": {"type": "json"}, "key": ["a"]},
        {"from": "a", "console": {}, "delivery": "atLeastOnce"},
        {"from": "a", "topic": "t", "delivery": "atLeastOnce"},
        {"from": "a", "console": {}, "format": {"type": "json"}},
        {"from": "a", "topic": "t", "format": {"type": "json"}},
        {"from": "a", "topic": "t", "compareWith": "u"},
        {"from": "a", "console": {}, "compareWith": "u"},
        {"from": "a", "topic": "t", "outputMode": "update", "compareWith": "u"},
        {"from": "a", "topic": "t", "outputMode": "update", "key": ["a"], "compareWith": "u"},
        {"from": "a", "topic": "t", "format": {"type": "json"}, "compareWith": "u"},
        {"from": "a", "topic": "t", "format": {"type": "avro"}, "compareWith": "u"},
        {"from": "a", "topic": "t", "key": ["a"], "keyFormat": {"type": "json"}, "compareWith": "u"},
        {"from": "a", "topic": "t", "key": ["a"], "keyFormat": {"type": "avro"}, "compareWith": "u"},
    ],
    "Trigger": [
        {},
        {"interval": "1s"},
        {"interval": "1s", "availableNow": True},
        {"availableNow": False},
        {"availableNow": True},
    ],
    "Volume": [{}, {"size": "1Gi"}, {"size": "1Gi", "claimName": "x"}],
    "Checkpoint": [{}, {"path": "x"}, {"path": "x", "s3": {"bucket": "abc"}}],
    "PipelineSpec": [
        {"sources": {"a": SOURCE}, "sinks": [{"from": "a"}]},
        {"sources": {"a": SOURCE}, "sinks": [{"from": "b"}]},
        {"sources": {"a": SOURCE}, "transforms": [{"name": "b"}], "sinks": [{"from": "b"}]},
        {"sources": {"a": SOURCE}, "transforms": [{"name": "a"}], "sinks": [{"from": "a"}]},
        {"sources": {"a-b": SOURCE}, "sinks": [{"from": "a-b"}]},
        {"sources": {"a": SOURCE}, "transforms": [{"name": "b", "union": ["a", "c"]}], "sinks": [{"from": "b"}]},
        {"sources": {"a": SOURCE}, "sinks": [{"from": "a"}], "replaces": {"name": "b", "takeOver": "WhenEqual"}},
        {"sources": {"a": SOURCE}, "sinks": [{"from": "a"}], "replaces": {"name": "b", "takeOver": "WhenCaughtUp"}},
        {
            "sources": {"a": SOURCE},
            "sinks": [{"from": "a", "compareWith": "t"}],
            "replaces": {"name": "b", "takeOver": "WhenEqual"},
        },
    ],
}
# model → (new, old)
CHANGES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "TopicSpec": [
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "b"}}),
        ({"clusterRef": {"name": "a"}, "partitions": 1}, {"clusterRef": {"name": "a"}, "partitions": 2}),
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "a"}, "partitions": 2}),
        ({"clusterRef": {"name": "a"}, "partitions": 2}, {"clusterRef": {"name": "a"}, "partitions": 2}),
        ({"clusterRef": {"name": "a"}, "tenant": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "topicName": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "topicName": "x"}, {"clusterRef": {"name": "a"}, "topicName": "y"}),
    ],
    "SchemaSpec": [
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "b"}}),
        ({"clusterRef": {"name": "a"}, "tenant": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "subject": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "subject": "x"}, {"clusterRef": {"name": "a"}, "subject": "x"}),
    ],
    "Storage": [
        ({"size": "1Gi"}, {"size": "1024Mi"}),
        ({"size": "1Gi"}, {"size": "2Gi"}),
        ({"size": "1Gi", "class": "a"}, {"size": "1Gi"}),
        ({"size": "1Gi", "class": "a"}, {"size": "1Gi", "class": "a"}),
    ],
    "UserSpec": [
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "b"}}),
        ({"clusterRef": {"name": "a"}, "tenant": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "userName": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "userName": "x"}, {"clusterRef": {"name": "a"}, "userName": "x"}),
        ({"clusterRef": {"name": "a"}, "secretName": "x"}, {"clusterRef": {"name": "a"}, "secretName": "y"}),
    ],
    "MirrorSpec": [
        ({"target": {"clusterRef": {"name": "a"}}}, {"target": {"clusterRef": {"name": "b"}}}),
        ({"target": {"clusterRef": {"name": "a"}}}, {"target": {"clusterRef": {"name": "a"}}}),
    ],
}

MODELS = sorted(
    {model for kind in KINDS for model in models_within(kind.spec) if model.rules}, key=lambda it: it.__name__
)
RULES = [(model, rule) for model in MODELS for rule in model.rules]


def cel(text: str, **values: Any) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(text))
    return bool(program.evaluate({name: json_to_cel(value) for name, value in values.items()}))


@pytest.mark.parametrize(
    ("model", "rule"), RULES, ids=lambda it: it.__name__ if isinstance(it, type) else it.message[:40]
)
def test_rule_gives_the_same_verdict_in_cel_and_python(model: type[Model], rule: Rule | Transition) -> None:
    verdicts = set()
    if isinstance(rule, Rule):
        for example in EXAMPLES[model.__name__]:
            if "config" in rule.field or rule.cel is None:
                verdicts.add(rule.holds(example))
                continue
            verdicts.add(rule.holds(example))
            assert cel(rule.cel, self=example) == rule.holds(example), example
    else:
        for new, old in CHANGES[model.__name__]:
            verdicts.add(rule.holds(new, old))
            if "quantity(" not in rule.cel:  # a Kubernetes extension that celpy lacks
                assert cel(rule.cel, self=new, oldSelf=old) == rule.holds(new, old), (new, old)
    assert verdicts == {True, False}, "the rule holds for every example, or for none"


def test_examples_exist_for_exactly_the_models_with_rules() -> None:
    assert {*EXAMPLES, *CHANGES} == {model.__name__ for model in MODELS}


@pytest.mark.parametrize("sample", samples.ALL)
def test_valid_resource_has_no_problems(sample: Any) -> None:
    assert validation.validate_resource(sample()) == []
    assert validation.validate_update(sample(), sample()) == []


def validation_messages(resource: dict[str, Any]) -> list[str]:
    return [str(it) for it in validation.validate_resource(resource)]


def test_unknown_field_is_reported_with_a_suggestion() -> None:
    assert validation_messages(samples.topic(partition=3)) == [
        "spec.partition: unknown field; did you mean 'partitions'?"
    ]


def test_invalid_value_is_reported_with_what_is_allowed() -> None:
    assert validation_messages(samples.topic(partitions="three")) == ["spec.partitions: 'three' is not an integer"]
    assert validation_messages(samples.topic(clusterRef="demo")) == [
        "spec.clusterRef: 'demo' is not an object; its fields: name"
    ]
    assert validation_messages(samples.topic(partitions=0)) == ["spec.partitions: 0 is too small; must be at least 1"]
    assert validation_messages(samples.topic(deletionPolicy="delete")) == [
        "spec.deletionPolicy: 'delete' is none of Retain, Delete; did you mean 'Delete'?"
    ]


def test_missing_field_is_reported() -> None:
    broken = samples.topic()
    del broken["spec"]["clusterRef"]
    assert validation_messages(broken) == ["spec: 'clusterRef' is required"]


def test_path_of_a_problem_leads_into_lists_and_maps() -> None:
    broken = samples.pipeline()
    broken["spec"]["sources"]["flights"]["format"]["typ"] = "json"
    broken["spec"]["sinks"].append({"from": "nothing", "topic": "x"})
    assert validation_messages(broken) == ["spec.sources.flights.format.typ: unknown field; did you mean 'type'?"]
    del broken["spec"]["sources"]["flights"]["format"]["typ"]
    assert validation_messages(broken) == [
        (
            "spec.sinks: a sink's `from` must name a source or a transform of this pipeline; 'nothing' is "
            "none of flights, late"
        )
    ]
    broken["spec"]["sinks"][1] = {"from": "late"}
    assert validation_messages(broken)[0].startswith("spec.sinks[1]: a sink has exactly one target")


def test_value_that_does_not_match_a_pattern_is_described() -> None:
    assert validation_messages(samples.pipeline(trigger={"interval": "often"})) == [
        "spec.trigger.interval: 'often' is not a duration, such as 500ms, 30s or 10 minutes"
    ]
    assert validation_messages(samples.pipeline(transforms=[{"name": "late", "python": "steps.py"}])) == [
        "spec.transforms[0].python: 'steps.py' is not a Python file and a function or class in it, such as "
        "steps.py:score"
    ]
    assert validation_messages(samples.topic(topicName="a b")) == [
        "spec.topicName: 'a b' is not a topic name: letters, digits, '.', '_' and '-'"
    ]


def test_rejected_update_names_the_old_and_the_new_value() -> None:
    (problem,) = validation.validate_update(samples.topic(partitions=2), samples.topic(partitions=3))
    assert str(problem).endswith("create a new topic instead; 2 is less than the current 3")


def test_max_rate_must_be_greater_than_zero() -> None:
    assert validation_messages(samples.pipeline(deadLetter={"topic": "dead", "maxRate": 0.05})) == []
    assert validation_messages(samples.pipeline(deadLetter={"topic": "dead", "maxRate": 0})) == [
        "spec.deadLetter.maxRate: 0 is too small; must be greater than 0"
    ]


def test_settings_are_strings_numbers_or_booleans() -> None:
    assert validation_messages(samples.cluster(config={"a.b": True, "c": 1.5, "d": "x"})) == []
    assert validation_messages(samples.cluster(config={"a.b": [1]})) == [
        "spec.config.a.b: a setting is a string, a number or a boolean, not a list"
    ]


def test_document_that_is_not_a_resource_is_described() -> None:
    assert validation_messages([])[0].startswith("a resource is an object")  # type: ignore[arg-type]
    assert "expected ottla.dev/v1alpha1" in validation_messages({"apiVersion": "ottla.dev/v1", "kind": "Topic"})[0]
    assert "did you mean 'Topic'?" in validation_messages({"apiVersion": "ottla.dev/v1alpha1", "kind": "Topics"})[0]
    assert "is not a Kubernetes object name" in validation_messages({**samples.topic(), "metadata": {"name": "A_b"}})[0]


def test_partitions_cannot_be_decreased() -> None:
    (problem,) = validation.validate_update(samples.topic(partitions=2), samples.topic(partitions=3))
    assert problem.path == ("spec", "partitions")
    assert "cannot be decreased" in problem.message


def test_rejected_update_of_a_nested_field_has_its_path() -> None:
    old, new = samples.cluster(storage={"size": "2Gi"}), samples.cluster(storage={"size": "1Gi"})
    assert [it.path for it in validation.validate_update(new, old)] == [("spec", "storage", "size")]
    assert validation.validate_update(old, deepcopy(old)) == []
