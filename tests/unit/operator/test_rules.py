"""Every rule that celpy can evaluate gives the same result in CEL and in Python, and resources are
validated with readable problems.
"""

from copy import deepcopy
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from ottla_operator.resources import validation
from ottla_operator.resources.crds import KINDS, CustomResourceKind, openapi_schema
from ottla_operator.resources.model import Model, Rule, Transition
from tests.unit.operator import samples
from tests.unit.operator.resource_models import models_within
from tests.unit.operator.rule_examples import CHANGES, EXAMPLES

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


@pytest.mark.parametrize("kind", KINDS, ids=lambda it: it.name)
def test_every_pattern_of_a_spec_is_described(kind: CustomResourceKind) -> None:
    assert patterns_within(openapi_schema(kind)["properties"]["spec"]) <= validation.FORMS.keys()


def patterns_within(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set[str]().union(*map(patterns_within, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own.union(*map(patterns_within, schema.values()))


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
