"""The SparkApplication of Kubeflow's Spark operator (sparkoperator.k8s.io/v1beta2, as of its
version 2.5).

- Properties of pods without a Spark setting are in pod templates, which the Spark operator passes
  to spark-submit unchanged. Its other fields for volumes and security contexts need its webhook,
  and are ignored where there is a template.
- Any change of the spec except `suspend` restarts the application, so the spec may depend only on
  the Pipeline, its Cluster, its login and the operator's options.
- Never `deps.packages`: they would be downloaded at every start.
"""

from typing import Final

from ottla_operator.plan.objects.pod_defaults import pull_secrets
from ottla_operator.plan.objects.security_context import pod_security
from ottla_operator.plan.pipeline import names, pods, spark
from ottla_operator.plan.pipeline.pods import BrokerConnection, PipelineImage
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

API: Final = "sparkoperator.k8s.io/v1beta2"
KIND: Final = "SparkApplication"
PROGRAM: Final = "local:///opt/own/ottla_spark/__main__.py"
JARS: Final = "/opt/ottla/jars/*"
RETRIES: Final = 3
RETRY_INTERVAL_S: Final = 10


def spark_application(
    pipeline: Pipeline, image: PipelineImage, connection: BrokerConnection, config_map: str, executor: Json
) -> Json:
    """`executor`: the executors' pod template."""
    return {
        "apiVersion": API,
        "kind": KIND,
        # The Spark operator also gives these labels to all pods of the application.
        "metadata": names.metadata(pipeline, names.application(pipeline)),
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": spark.VERSION,
            "image": image.of(pipeline),
            "imagePullPolicy": image.pull_policy,
            "mainApplicationFile": PROGRAM,
            "arguments": pods.runner_arguments(pipeline, connection, spark.MASTER),
            "sparkConf": _conf(pipeline),
            "restartPolicy": _restart_policy(pipeline),
            "suspend": pipeline.spec.state == "suspended",
            "driver": _driver(pipeline, image, connection, config_map),
            "executor": _executor(pipeline, executor),
        },
    }


def _conf(pipeline: Pipeline) -> dict[str, str]:
    """The JVM starts before the runner, so its class path is set here. Settings with a field of
    their own are left out.
    """
    fields = (
        "spark.driver.memory",
        "spark.driver.cores",
        "spark.kubernetes.driver.request.cores",
        "spark.executor.memory",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.kubernetes.executor.request.cores",
    )
    conf = {key: value for key, value in spark.complete_conf(pipeline).items() if key not in fields}
    own_path = conf.get("spark.driver.extraClassPath")
    return dict(sorted({**conf, "spark.driver.extraClassPath": f"{JARS}:{own_path}" if own_path else JARS}.items()))


def _restart_policy(pipeline: Pipeline) -> Json:
    """A driver of a stream is restarted after every exit; a driver with
    availableNow only after a failure.
    """
    again = {"onFailureRetryInterval": RETRY_INTERVAL_S, "onSubmissionFailureRetryInterval": RETRY_INTERVAL_S}
    if pipeline.spec.trigger.available_now:
        return {"type": "OnFailure", "onFailureRetries": RETRIES, "onSubmissionFailureRetries": RETRIES, **again}
    return {"type": "Always", **again}


def _driver(pipeline: Pipeline, image: PipelineImage, connection: BrokerConnection, config_map: str) -> Json:
    size = spark.driver_size(pipeline)
    container = {
        **pods.driver_container(pipeline, connection),
        # The container's first process is the JVM, which would abort the batch in flight.
        "lifecycle": {"preStop": {"exec": {"command": ["python", "-m", "ottla_spark.stop"]}}},
    }
    annotations = {"annotations": connection.annotations} if connection.annotations else {}
    template = {
        "metadata": {"labels": names.labels(pipeline, names.DRIVER), **annotations},
        "spec": {
            "terminationGracePeriodSeconds": pods.termination_grace_s(pipeline),
            "enableServiceLinks": False,
            "securityContext": pod_security(image.defaults),
            **pull_secrets(image.defaults),
            "containers": [container],
            "volumes": pods.driver_volumes(pipeline, config_map, connection),
        },
    }
    return {
        "cores": size.cores,
        "coreRequest": size.cpu,
        "memory": size.heap,
        "labels": names.labels(pipeline, names.DRIVER),
        "serviceAccount": names.driver(pipeline),
        "template": pods.with_pod_template(pipeline, template, pods.DRIVER_CONTAINER),
    }


def _executor(pipeline: Pipeline, template: Json) -> Json:
    size = spark.executor_size(pipeline)
    return {
        "instances": spark.executor_instances(pipeline),
        "cores": size.cores,
        "coreRequest": size.cpu,
        "memory": size.heap,
        "labels": names.labels(pipeline, names.EXECUTOR),
        "template": {key: template[key] for key in ("metadata", "spec")},
    }
