"""The schema of `spec.config` in the CRDs accepts the same values as the brokers' own table, tested
at its bounds.
"""

from collections.abc import Iterator
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError
from jsonschema import Draft4Validator

from ottla_broker.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, SettingError
from ottla_operator.plan.config_schema import cluster_config_schema, topic_config_schema
from ottla_operator.plan.refused_settings import OPERATOR_SETTINGS

TABLES = ((BROKER_SETTINGS, cluster_config_schema()), (TOPIC_SETTINGS, topic_config_schema()))
SETTINGS = [
    pytest.param(setting, schema["properties"][name], id=name)
    for table, schema in TABLES
    for name, setting in table.items()
    if name in schema["properties"] and name not in OPERATOR_SETTINGS
]


def is_admitted(schema: dict[str, Any], value: object) -> bool:
    is_typed = schema.get("x-kubernetes-int-or-string")
    if is_typed and (isinstance(value, bool) or not isinstance(value, int | str)):
        return False
    return Draft4Validator(schema).is_valid(value) and all(
        evaluate(it["rule"], value) for it in schema.get("x-kubernetes-validations", ())
    )


def evaluate(rule: str, value: object) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(rule))
    try:
        return bool(program.evaluate({"self": json_to_cel(value)}))  # type: ignore[arg-type]
    except (CELEvalError, ValueError):  # beyond 64 bits, which an API server does not accept either
        return False


def is_parsed(setting: Setting[object], text: str) -> bool:
    try:
        setting.parse(text)
    except SettingError:
        return False
    return True


def example_values(setting: Setting[object]) -> Iterator[str]:
    """Words, bounds, values beside the bounds, and invalid values."""
    yield from setting.type.words or ()
    if allowed := setting.type.range:
        also = [] if allowed.also is None else [allowed.also]
        yield from (str(it + step) for it in (allowed.low, allowed.high, *also) for step in (-1, 0, 1))
    if setting.default_text is not None:
        yield setting.default_text
    yield from ("nonsense", "1.5", "")


@pytest.mark.parametrize(("setting", "schema"), SETTINGS)
def test_schema_and_table_agree(setting: Setting[object], schema: dict[str, Any]) -> None:
    for text in example_values(setting):
        assert is_admitted(schema, text) == is_parsed(setting, text), text
        if text.lstrip("-").isdigit():
            assert is_admitted(schema, int(text)) == is_parsed(setting, text), text


def test_most_settings_are_checked_at_admission() -> None:
    for table, schema in TABLES:
        assert len(schema["properties"].keys() & table.keys()) > 0.75 * len(table)


@pytest.mark.parametrize("value", [True, False, "true", "False"])
def test_booleans_may_have_quotes(value: object) -> None:
    assert is_admitted(cluster_config_schema()["properties"]["auto.create.topics.enable"], value)


def test_a_value_may_refer_to_the_brokers_environment() -> None:
    assert is_admitted(cluster_config_schema()["properties"]["num.partitions"], "${env:PARTITIONS}")


@pytest.mark.parametrize("name", OPERATOR_SETTINGS)
def test_settings_of_the_operator_are_never_admitted(name: str) -> None:
    assert not is_admitted(cluster_config_schema()["properties"][name], "1")
