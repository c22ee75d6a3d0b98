"""Spark's settings and sizes of a Pipeline
(https://spark.apache.org/docs/4.0.0/running-on-kubernetes.html).

Memory is the JVM's heap, as in Spark's own settings: a pod requests more, by Spark's overhead
factor for Python programs. So a Pipeline needs the same with every launcher.
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

OPERATOR_SETTINGS: Final = (
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
"""Settings that only the operator may set on Kubernetes. Packages would be downloaded at every
start: they belong in the image."""

_JVM_SIZE: Final = re.compile(r"([0-9]+)([kmgt]?)b?", re.IGNORECASE)
_JVM_MI: Final = {"": 1 / MEBI, "k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Size:
    """`cores`: concurrent tasks. `cpu`: the pod's request. `heap_mi`: the JVM's heap in MiB."""

    cores: int
    cpu: str
    heap_mi: int

    @property
    def heap(self) -> str:
        """Heap size in the format of Spark's settings."""
        return f"{self.heap_mi}m"

    @property
    def memory(self) -> str:
        """Memory of the whole pod, as Spark computes it."""
        return f"{self.heap_mi + max(int(OVERHEAD * self.heap_mi), LEAST_OVERHEAD_MI)}Mi"


def driver_size(pipeline: Pipeline) -> Size:
    return _size(pipeline, "driver", pipeline.spec.spark.driver)


def executor_size(pipeline: Pipeline) -> Size:
    return _size(pipeline, "executor", pipeline.spec.spark.executor)


def executor_instances(pipeline: Pipeline) -> int:
    spark = pipeline.spec.spark
    if spark.executor is not None and spark.executor.instances is not None:
        return spark.executor.instances
    return int(spark.conf.get("spark.executor.instances", "1"))


def complete_conf(pipeline: Pipeline) -> dict[str, str]:
    """Spark settings for every launcher: the Pipeline's fields over its conf over our defaults."""
    driver, executor = driver_size(pipeline), executor_size(pipeline)
    defaults = {
        # Fixed, so that network policies can name them.
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
        "spark.executor.instances": str(executor_instances(pipeline)),
    }
    return dict(sorted({**defaults, **pipeline.spec.spark.conf, **fields}.items()))


def find_invalid_conf(pipeline: Pipeline) -> str:
    """The reason why `spec.spark.conf` is not allowed on Kubernetes; empty if it is."""
    own = pipeline.spec.spark.conf
    if taken := [it for it in OPERATOR_SETTINGS if it in own]:
        return f"spec.spark.conf: {', '.join(taken)}: set by the operator on Kubernetes"
    for key in ("spark.driver.memory", "spark.executor.memory"):
        if key in own and not _JVM_SIZE.fullmatch(own[key]):
            return f"spec.spark.conf: {key}: {own[key]!r} is not an amount of memory, such as 512m or 2g"
    if not own.get("spark.executor.instances", "1").isdigit():
        return f"spec.spark.conf: spark.executor.instances: {own['spark.executor.instances']!r} is not a number"
    return ""


def _size(pipeline: Pipeline, role: str, requested: Driver | Executor | None) -> Size:
    own = pipeline.spec.spark.conf
    cpu = str(requested.cores) if requested and requested.cores is not None else own.get(f"spark.{role}.cores", "1")
    if requested and requested.memory:
        heap_mi = int(parse_quantity(requested.memory) / MEBI)
    elif text := own.get(f"spark.{role}.memory"):
        heap_mi = _parse_jvm_mi(text)
    else:
        heap_mi = HEAP_MI
    requested_cpu = own.get(f"spark.kubernetes.{role}.request.cores") if not (requested and requested.cores) else None
    return Size(max(1, math.ceil(parse_quantity(cpu))), requested_cpu or cpu, heap_mi)


def _parse_jvm_mi(text: str) -> int:
    found = _JVM_SIZE.fullmatch(text)
    assert found is not None, f"{text} must have been rejected"
    return max(1, int(int(found[1]) * _JVM_MI[found[2].lower()]))
