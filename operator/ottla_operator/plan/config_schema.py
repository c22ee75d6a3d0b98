"""Schema of `spec.config` in the CRDs, from the brokers' own tables of settings, so that the API
server refuses an invalid value at admission.

A name that is in no table stays possible here, because prefixes cannot be listed and a schema that
lists all names would drop the others silently. In a Cluster, the operator refuses a name that
brokers do not accept before any broker is restarted (`refused_settings.py`). Booleans may be
written with quotes or without. A value may refer to the broker's environment (`${env:NAME}`),
except where the allowed values are a list of words.
"""

from collections.abc import Mapping
from typing import Final

from ottla_broker.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Setting
from ottla_operator.plan.refused_settings import OPERATOR_SETTINGS
from ottla_operator.resources.model import Json

INT_OR_STRING: Final[Mapping[str, Json]] = {"x-kubernetes-int-or-string": True}
ANY_SCALAR: Final[Mapping[str, Json]] = {"x-kubernetes-preserve-unknown-fields": True}
MAX_NUMBER_LENGTH: Final = 256
"""Length of a number written as a string; the API server bounds the cost of a rule by it."""
INTEGER_OR_REFERENCE: Final = r"^[+-]?[0-9]+$|[$][{]"


def cluster_config_schema() -> Json:
    refused = {name: _refuse(name, reason) for name, reason in OPERATOR_SETTINGS.items()}
    return _schema({**_properties(BROKER_SETTINGS), **refused})


def topic_config_schema() -> Json:
    return _schema(_properties(TOPIC_SETTINGS))


def group_config_schema() -> Json:
    return _schema(_properties(GROUP_SETTINGS))


def _schema(properties: Mapping[str, Json]) -> Json:
    return {"x-kubernetes-preserve-unknown-fields": True, "properties": dict(sorted(properties.items()))}


def _properties(settings: Mapping[str, Setting[object]]) -> dict[str, Json]:
    return {name: schema for name, it in settings.items() if (schema := _property(it))}


def _property(setting: Setting[object]) -> Json | None:
    """None for a value whose syntax only the broker knows."""
    if allowed := setting.type.range:
        number = f"int(self) >= {allowed.low} && int(self) <= {allowed.high}"
        also = "" if allowed.also is None else f" || int(self) == {allowed.also}"
        return {
            **INT_OR_STRING,
            "maxLength": MAX_NUMBER_LENGTH,
            "pattern": INTEGER_OR_REFERENCE,
            "x-kubernetes-validations": [
                {
                    "rule": f"string(self).contains('${{') || ({number}){also}",
                    "message": f"{setting.name}: allowed: {setting.type.allowed}",
                }
            ],
        }
    if words := setting.type.words:
        return {**ANY_SCALAR, "enum": [form for word in words for form in _forms(word)]}
    return None


def _forms(word: str) -> list[Json]:
    """The values that a word can be in YAML: text, a boolean or a number."""
    if word in ("true", "false"):
        return [word == "true", word, word.capitalize(), word.upper()]
    return [int(word), word] if word.lstrip("-").isdigit() else [word]


def _refuse(name: str, why: str) -> Json:
    return {
        **INT_OR_STRING,
        "x-kubernetes-validations": [{"rule": "false", "message": f"{name} cannot be set here: {why}"}],
    }
