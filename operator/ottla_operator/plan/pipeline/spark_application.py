"""The SparkApplication of kubeflow's Spark operator (sparkoperator.k8s.io/v1beta2, as of its version 2.5).

- What Spark's settings have no word for is in pod templates, which its operator hands to spark-submit as they are. Its other fields for volumes and security
  contexts need its webhook, and are passed over where a template is given.
- Any change of the spec but of `suspend` restarts the application, so nothing here may depend on more than the Pipeline, its Cluster and the operator's image.
- Never `deps.packages`: they would be fetched at every start.
"""

from typing import Final

from ottla_operator.plan.objects.security_context import pod_security
from ottla_operator.plan.pipeline import names, pods, spark
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

API: Final = "sparkoperator.k8s.io/v1beta2"
KIND: Final = "SparkApplication"
PROGRAM: Final = "local:///opt/own/ottla_spark/__main__.py"
JARS: Final = "/opt/ottla/jars/*"
TRIES: Final = 3
AGAIN_AFTER_S: Final = 10


def spark_application(
    pipeline: Pipeline, image: PipelineImage, bootstrap: str, config_map: str, executor: Json
) -> Json:
    """`executor`: the pod template of executors."""
    return {
        "apiVersion": API,
        "kind": KIND,
        # Its operator gives these labels to all pods of the application, too.
        "metadata": names.metadata(pipeline, names.application(pipeline)),
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": spark.VERSION,
            "image": image.of(pipeline),
            "imagePullPolicy": image.pull_policy,
            "mainApplicationFile": PROGRAM,
            "arguments": pods.arguments(pipeline, bootstrap, spark.MASTER),
            "sparkConf": _conf(pipeline),
            "restartPolicy": _restart(pipeline),
            "suspend": pipeline.spec.state == "suspended",
            "driver": _driver(pipeline, config_map),
            "executor": _executor(pipeline, executor),
        },
    }


def _conf(pipeline: Pipeline) -> dict[str, str]:
    """The JVM is there before the runner: what has to be on its class path is said here. What has a field of its own is left to that."""
    fields = (
        "spark.driver.memory",
        "spark.driver.cores",
        "spark.kubernetes.driver.request.cores",
        "spark.executor.memory",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.kubernetes.executor.request.cores",
    )
    told = {key: value for key, value in spark.complete_conf(pipeline).items() if key not in fields}
    beside = told.get("spark.driver.extraClassPath")
    return dict(sorted({**told, "spark.driver.extraClassPath": f"{JARS}:{beside}" if beside else JARS}.items()))


def _restart(pipeline: Pipeline) -> Json:
    """A stream is to run for ever, also after an orderly end; what reads what is there and ends is done then."""
    ends = pipeline.spec.trigger is not None and bool(pipeline.spec.trigger.available_now)
    again = {"onFailureRetryInterval": AGAIN_AFTER_S, "onSubmissionFailureRetryInterval": AGAIN_AFTER_S}
    if ends:
        return {"type": "OnFailure", "onFailureRetries": TRIES, "onSubmissionFailureRetries": TRIES, **again}
    return {"type": "Always", **again}


def _driver(pipeline: Pipeline, config_map: str) -> Json:
    size = spark.driver_size(pipeline)
    container = {
        **pods.driver_container(pipeline),
        # The container's first process is the JVM, which would end batches half-done.
        "lifecycle": {"preStop": {"exec": {"command": ["python", "-m", "ottla_spark.stop"]}}},
    }
    return {
        "cores": size.cores,
        "coreRequest": size.cpu,
        "memory": size.heap,
        "labels": names.labels(pipeline, names.DRIVER),
        "serviceAccount": names.driver(pipeline),
        "template": {
            "metadata": {"labels": names.labels(pipeline, names.DRIVER)},
            "spec": {
                "terminationGracePeriodSeconds": pods.stop_within_s(pipeline),
                "enableServiceLinks": False,
                "securityContext": pod_security(),
                "containers": [container],
                "volumes": pods.driver_volumes(pipeline, config_map),
            },
        },
    }


def _executor(pipeline: Pipeline, template: Json) -> Json:
    size = spark.executor_size(pipeline)
    return {
        "instances": spark.instances(pipeline),
        "cores": size.cores,
        "coreRequest": size.cpu,
        "memory": size.heap,
        "labels": names.labels(pipeline, names.EXECUTOR),
        "template": {key: template[key] for key in ("metadata", "spec")},
    }
