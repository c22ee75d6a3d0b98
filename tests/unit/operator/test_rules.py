"""Every rule says the same in CEL, for the API server, and in Python, for `ottla up`; and it says it of the right objects."""

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

# model → objects, good and bad; every rule of the model must hold of one and fail of another.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "TopicSpec": [{"topicName": "."}, {"topicName": "a"}, {}],
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
        {"config": {"log.dirs": "/x"}},
        {},
    ],
    "Authentication": [
        {"type": "TLS", "passwordFrom": {"name": "a", "key": "b"}},
        {"type": "TLS"},
        {"type": "SCRAM-SHA-256", "passwordFrom": {"name": "a", "key": "b"}},
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
        {},
    ],
    "Format": [{"type": "raw", "schema": "x"}, {"type": "raw"}, {"type": "json"}, {"type": "json", "schema": "x"}],
    "Source": [
        {**SOURCE, "watermark": {"column": "a", "delay": "1s"}, "mode": "table"},
        {**SOURCE, "watermark": {"column": "a", "delay": "1s"}, "mode": "stream"},
        {**SOURCE, "watermark": {"column": "a", "delay": "1s"}},
        {**SOURCE, "mode": "table"},
    ],
    "Transform": [{"name": "a"}, {"name": "a", "sql": "x"}, {"name": "a", "sql": "x", "python": "a.py:b"}],
    "Sink": [
        {"from": "a"},
        {"from": "a", "topic": "t", "console": {}},
        {"from": "a", "console": {}, "key": ["a"]},
        {"from": "a", "topic": "t", "key": ["a"]},
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
    ],
}
# model → (new, old)
CHANGES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "TopicSpec": [
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "b"}}),
        ({"clusterRef": {"name": "a"}, "partitions": 1}, {"clusterRef": {"name": "a"}, "partitions": 2}),
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "a"}, "partitions": 2}),
        ({"clusterRef": {"name": "a"}, "partitions": 2}, {"clusterRef": {"name": "a"}, "partitions": 2}),
        ({"clusterRef": {"name": "a"}, "topicName": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "topicName": "x"}, {"clusterRef": {"name": "a"}, "topicName": "y"}),
    ],
    "Storage": [
        ({"size": "1Gi"}, {"size": "1024Mi"}),
        ({"size": "1Gi"}, {"size": "2Gi"}),
        ({"size": "1Gi", "class": "a"}, {"size": "1Gi"}),
        ({"size": "1Gi", "class": "a"}, {"size": "1Gi", "class": "a"}),
    ],
    "UserSpec": [
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "b"}}),
        ({"clusterRef": {"name": "a"}, "userName": "x"}, {"clusterRef": {"name": "a"}}),
        ({"clusterRef": {"name": "a"}, "userName": "x"}, {"clusterRef": {"name": "a"}, "userName": "x"}),
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
    # `has(self.class)`: the API server knows the field; the evaluator here takes `class` for a word of the language.
    environment = celpy.Environment()
    program = environment.program(environment.compile(text))
    return bool(program.evaluate({name: json_to_cel(value) for name, value in values.items()}))


@pytest.mark.parametrize(
    ("model", "rule"), RULES, ids=lambda it: it.__name__ if isinstance(it, type) else it.message[:40]
)
def test_cel_and_python_agree(model: type[Model], rule: Rule | Transition) -> None:
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
            if "quantity(" not in rule.cel:  # Kubernetes' own function, which the evaluator here lacks
                assert cel(rule.cel, self=new, oldSelf=old) == rule.holds(new, old), (new, old)
    assert verdicts == {True, False}, "the examples show only one side of the rule"


def test_there_are_no_examples_of_nothing() -> None:
    assert {*EXAMPLES, *CHANGES} == {model.__name__ for model in MODELS}


@pytest.mark.parametrize("sample", samples.ALL)
def test_good_resources_pass(sample: Any) -> None:
    assert validation.validate_resource(sample()) == []
    assert validation.validate_update(sample(), sample()) == []


def said(resource: dict[str, Any]) -> list[str]:
    return [str(it) for it in validation.validate_resource(resource)]


def test_a_misspelt_field_is_named_with_the_likely_word() -> None:
    assert said(samples.topic(partition=3)) == ["spec.partition: there is no such field; did you mean 'partitions'?"]


def test_a_wrong_type_is_named_with_value_and_what_is_allowed() -> None:
    assert said(samples.topic(partitions="three")) == ["spec.partitions: 'three' is not a whole number"]
    assert said(samples.topic(partitions=0)) == ["spec.partitions: 0 is too small; at least 1"]
    assert said(samples.topic(deletionPolicy="delete")) == [
        "spec.deletionPolicy: 'delete' is none of Retain, Delete; did you mean 'Delete'?"
    ]


def test_what_is_missing_is_named() -> None:
    broken = samples.topic()
    del broken["spec"]["clusterRef"]
    assert said(broken) == ["spec: 'clusterRef' is missing"]


def test_paths_go_into_lists_and_maps() -> None:
    broken = samples.pipeline()
    broken["spec"]["sources"]["flights"]["format"]["typ"] = "json"
    broken["spec"]["sinks"].append({"from": "nothing", "topic": "x"})
    assert said(broken) == ["spec.sources.flights.format.typ: there is no such field; did you mean 'type'?"]
    del broken["spec"]["sources"]["flights"]["format"]["typ"]
    assert said(broken) == [
        "spec.sinks: a sink's `from` must name a source or a transform of this pipeline; 'nothing' is none of flights, late"
    ]
    broken["spec"]["sinks"][1] = {"from": "late"}
    assert said(broken)[0].startswith("spec.sinks[1]: a sink has exactly one target")


def test_what_is_not_of_the_form_is_told_in_words() -> None:
    assert said(samples.pipeline(trigger={"interval": "often"})) == [
        "spec.trigger.interval: 'often' is not a length of time, such as 500ms, 30s or 10 minutes"
    ]
    assert said(samples.pipeline(transforms=[{"name": "late", "python": "steps.py"}])) == [
        "spec.transforms[0].python: 'steps.py' is not a file and a function of it, such as steps.py:score"
    ]
    assert said(samples.topic(topicName="a b")) == [
        "spec.topicName: 'a b' is not a name of a topic: letters, digits, '.', '_' and '-'"
    ]


def test_a_change_that_may_not_be_says_from_what_to_what() -> None:
    (problem,) = validation.validate_update(samples.topic(partitions=2), samples.topic(partitions=3))
    assert str(problem).endswith("make a new topic instead; 2 is less than 3, as it was")


def test_a_rate_must_be_more_than_nothing() -> None:
    assert said(samples.pipeline(deadLetter={"topic": "dead", "maxRate": 0.05})) == []
    assert said(samples.pipeline(deadLetter={"topic": "dead", "maxRate": 0})) == [
        "spec.deadLetter.maxRate: 0 is too small; more than 0"
    ]


def test_settings_are_strings_numbers_or_booleans() -> None:
    assert said(samples.cluster(config={"a.b": True, "c": 1.5, "d": "x"})) == []
    assert said(samples.cluster(config={"a.b": [1]})) == [
        "spec.config.a.b: a setting is a string, a number or a boolean, not a list"
    ]


def test_settings_that_follow_from_the_rest_are_refused() -> None:
    (problem,) = said(samples.cluster(config={"node.id": 7}))
    assert problem.startswith("spec.config: these settings follow from the rest of the spec")


def test_other_things_than_resources_are_refused_in_words() -> None:
    assert said([])[0].startswith("a resource is an object")  # type: ignore[arg-type]
    assert "write ottla.dev/v1alpha1" in said({"apiVersion": "ottla.dev/v1", "kind": "Topic"})[0]
    assert "did you mean 'Topic'?" in said({"apiVersion": "ottla.dev/v1alpha1", "kind": "Topics"})[0]
    assert "is no name for Kubernetes" in said({**samples.topic(), "metadata": {"name": "A_b"}})[0]


def test_partitions_never_fall() -> None:
    (problem,) = validation.validate_update(samples.topic(partitions=2), samples.topic(partitions=3))
    assert problem.path == ("spec", "partitions")
    assert "never shrink" in problem.message


def test_a_change_deep_inside_is_found() -> None:
    old, new = samples.cluster(storage={"size": "2Gi"}), samples.cluster(storage={"size": "1Gi"})
    assert [it.path for it in validation.validate_update(new, old)] == [("spec", "storage", "size")]
    assert validation.validate_update(old, deepcopy(old)) == []
