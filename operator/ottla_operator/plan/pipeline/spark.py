"""Spark's settings and sizes of a Pipeline (https://spark.apache.org/docs/4.0.0/running-on-kubernetes.html).

What is Spark's memory here is the JVM's heap, as in Spark's own settings: a pod asks for more, by Spark's factor for programs in Python. So a Pipeline needs
the same whoever launches it.
"""

import math
import re
from dataclasses import dataclass
from typing import Final

from ottla_operator.resources.common import parse_quantity
from ottla_operator.resources.pipeline import Driver, Executor, Pipeline

VERSION: Final = "4.0.0"
MASTER: Final = "k8s://https://kubernetes.default.svc"
MEBI: Final = 2**20
HEAP_MI: Final = 1024  # Spark's own default
OVERHEAD, LEAST_OVERHEAD_MI = 0.4, 384

OURS: Final = (
    "spark.master",
    "spark.submit.deployMode",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.jars.packages",
    "spark.kubernetes.namespace",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.container.image",
    "spark.kubernetes.executor.container.image",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.authenticate.driver.serviceAccountName",
)
"""Settings that a Pipeline cannot have otherwise on Kubernetes. Packages would be fetched anew at every start: they belong in the image."""

_JVM_SIZE: Final = re.compile(r"([0-9]+)([kmgt]?)b?", re.IGNORECASE)
_JVM_MI: Final = {"": 1 / MEBI, "k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Size:
    """`cores`: tasks at once. `cpu`: what the pod asks for. `heap_mi`: the JVM's memory in MiB."""

    cores: int
    cpu: str
    heap_mi: int

    @property
    def heap(self) -> str:
        """As Spark takes it."""
        return f"{self.heap_mi}m"

    @property
    def memory(self) -> str:
        """Of the whole pod, as Spark reckons it."""
        return f"{self.heap_mi + max(int(OVERHEAD * self.heap_mi), LEAST_OVERHEAD_MI)}Mi"


def driver_size(pipeline: Pipeline) -> Size:
    return _size(pipeline, "driver", pipeline.spec.spark.driver if pipeline.spec.spark else None)


def executor_size(pipeline: Pipeline) -> Size:
    return _size(pipeline, "executor", pipeline.spec.spark.executor if pipeline.spec.spark else None)


def instances(pipeline: Pipeline) -> int:
    spark = pipeline.spec.spark
    told = conf(pipeline).get("spark.executor.instances", "1")
    return (spark and spark.executor and spark.executor.instances) or int(told)


def conf(pipeline: Pipeline) -> dict[str, str]:
    """As the Pipeline gives it."""
    return dict((pipeline.spec.spark and pipeline.spec.spark.conf) or {})


def complete_conf(pipeline: Pipeline) -> dict[str, str]:
    """Settings of the pipeline whoever launches it: its own fields over its conf over our defaults."""
    driver, executor = driver_size(pipeline), executor_size(pipeline)
    defaults = {
        # Fixed, so that a network policy can name them.
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.blockManager.port": "7079",
        "spark.driver.memoryOverheadFactor": str(OVERHEAD),
        "spark.executor.memoryOverheadFactor": str(OVERHEAD),
    }
    fields = {
        "spark.driver.memory": driver.heap,
        "spark.executor.memory": executor.heap,
        "spark.executor.cores": str(executor.cores),
        "spark.kubernetes.executor.request.cores": executor.cpu,
        "spark.executor.instances": str(instances(pipeline)),
    }
    return dict(sorted({**defaults, **conf(pipeline), **fields}.items()))


def find_invalid_conf(pipeline: Pipeline) -> str:
    """Which of its settings Kubernetes cannot have, in words; empty when none."""
    told = conf(pipeline)
    if taken := [it for it in OURS if it in told]:
        return f"spec.spark.conf: {', '.join(taken)}: on Kubernetes the operator sets it"
    for key in ("spark.driver.memory", "spark.executor.memory"):
        if key in told and not _JVM_SIZE.fullmatch(told[key]):
            return f"spec.spark.conf: {key}: {told[key]!r} is no size of memory, such as 512m or 2g"
    if not told.get("spark.executor.instances", "1").isdigit():
        return f"spec.spark.conf: spark.executor.instances: {told['spark.executor.instances']!r} is no number"
    return ""


def _size(pipeline: Pipeline, role: str, wished: Driver | Executor | None) -> Size:
    told = conf(pipeline)
    cpu = str(wished.cores) if wished and wished.cores is not None else told.get(f"spark.{role}.cores", "1")
    if wished and wished.memory:
        heap_mi = int(parse_quantity(wished.memory) / MEBI)
    elif text := told.get(f"spark.{role}.memory"):
        heap_mi = _jvm_mi(text)
    else:
        heap_mi = HEAP_MI
    requested = told.get(f"spark.kubernetes.{role}.request.cores") if not (wished and wished.cores) else None
    return Size(max(1, math.ceil(parse_quantity(cpu))), requested or cpu, heap_mi)


def _jvm_mi(text: str) -> int:
    found = _JVM_SIZE.fullmatch(text)
    assert found is not None, f"{text} was to be refused"
    return max(1, int(int(found[1]) * _JVM_MI[found[2].lower()]))
