"""The fields of sparkoperator.k8s.io/v1beta2 that the operator emits, after the documentation of
kubeflow's Spark operator 2.5.

https://github.com/kubeflow/spark-operator/blob/v2.5.0/docs/api-docs.md (types SparkApplicationSpec,
RestartPolicy, DriverSpec, ExecutorSpec, SparkPodSpec). A field that is missing here
must be added from there before the operator emits it.
"""

import re
from collections.abc import Callable
from typing import Any, Final

Holds = Callable[[Any], bool]
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
JVM_SIZE = re.compile(r"[0-9]+[kmgt]?")
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def integer_of_bits(least: int, bits: int) -> Holds:
    """A whole number in JSON, as Go's int32 or int64 takes it."""
    return lambda it: type(it) is int and least <= it < 2 ** (bits - 1)


def text(pattern: re.Pattern[str] | None = None) -> Holds:
    return lambda it: isinstance(it, str) and (pattern is None or bool(pattern.fullmatch(it)))


def one_of(*allowed: str) -> Holds:
    return lambda it: it in allowed


def text_map(it: Any) -> bool:
    """A map from text to text."""
    return isinstance(it, dict) and all(isinstance(part, str) for pair in it.items() for part in pair)


def list_of_texts(it: Any) -> bool:
    return isinstance(it, list) and all(isinstance(part, str) for part in it)


def template_with(container: str) -> Holds:
    """A pod template (core/v1 PodTemplateSpec) with the container name that spark-submit is
    configured to use.
    """

    def holds(it: Any) -> bool:
        return set(it) <= {"metadata", "spec"} and [part["name"] for part in it["spec"]["containers"]] == [container]

    return holds


POD: Final[dict[str, Holds]] = {
    "cores": integer_of_bits(1, 32),
    "memory": text(JVM_SIZE),
    "labels": text_map,
    "coreRequest": text(QUANTITY),
}
DRIVER: Final = POD | {"serviceAccount": text(DNS_1035), "template": template_with("spark-kubernetes-driver")}
EXECUTOR: Final = POD | {"instances": integer_of_bits(1, 32), "template": template_with("spark-kubernetes-executor")}
RESTART: Final[dict[str, Holds]] = {
    "type": one_of("Never", "Always", "OnFailure"),
    "onFailureRetries": integer_of_bits(0, 32),
    "onSubmissionFailureRetries": integer_of_bits(0, 32),
    "onFailureRetryInterval": integer_of_bits(1, 64),
    "onSubmissionFailureRetryInterval": integer_of_bits(1, 64),
}
SPEC: Final[dict[str, Holds]] = {
    "type": one_of("Java", "Python", "Scala", "R"),
    "mode": one_of("cluster", "client"),
    "sparkVersion": text(re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")),
    "image": text(),
    "imagePullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "mainApplicationFile": text(re.compile(r"local:///.+\.py")),
    "arguments": list_of_texts,
    "sparkConf": text_map,
    "suspend": lambda it: isinstance(it, bool),
    "restartPolicy": lambda it: isinstance(it, dict),
    "driver": lambda it: isinstance(it, dict),
    "executor": lambda it: isinstance(it, dict),
}
REQUIRED: Final = ("type", "sparkVersion", "mainApplicationFile", "driver", "executor")
INSIDE: Final = {"restartPolicy": RESTART, "driver": DRIVER, "executor": EXECUTOR}


def find_undocumented_fields(application: dict[str, Any]) -> list[tuple[str, Any]]:
    """Sorted paths of the fields that are not as documented, with their values, and of required
    fields that are missing, with None."""
    found: list[tuple[str, Any]] = []
    if (application["apiVersion"], application["kind"]) != ("sparkoperator.k8s.io/v1beta2", "SparkApplication"):
        found.append(("kind", application["kind"]))
    if not DNS_1035.fullmatch(application["metadata"]["name"]):  # its webhook refuses others
        found.append(("metadata.name", application["metadata"]["name"]))
    spec = application["spec"]
    found += [(f"spec.{key}", None) for key in REQUIRED if key not in spec]
    found += _undocumented_fields_of("spec", spec, SPEC)
    for key, fields in INSIDE.items():
        found += _undocumented_fields_of(f"spec.{key}", spec.get(key, {}), fields)
    return sorted(found, key=lambda it: it[0])


def _undocumented_fields_of(path: str, it: dict[str, Any], fields: dict[str, Holds]) -> list[tuple[str, Any]]:
    return [(f"{path}.{key}", value) for key, value in it.items() if key not in fields or not fields[key](value)]
