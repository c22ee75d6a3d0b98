"""A substitute for kubeflow's Spark operator: submits a SparkApplication with Spark's own
spark-submit.

It translates the fields that the operator writes (see
tests/unit/operator/spark_application_fields.py) as version 2.5 does in cluster mode: each becomes a
`--conf`, pod templates become files. That version's webhook does not change pods of drivers with a
template, so nothing else is done to pods.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.kube.api_client import Json
from tests.kube.control_plane import ControlPlane
from tests.kube.namespace_client import NamespaceClient

API_VERSION = "sparkoperator.k8s.io/v1beta2"
SUBMIT_TIMEOUT_S = 240


@dataclass
class FakeSparkOperator:
    """`folder` gets the pod templates; SparkApplications are those of `resources`."""

    folder: Path
    plane: ControlPlane
    resources: NamespaceClient

    def get_application(self, name: str) -> Json:
        """The SparkApplication; empty if it does not exist."""
        return self.resources.list_objects(API_VERSION, "sparkapplications").get(name) or {}

    def submit(self, name: str) -> None:
        """Run spark-submit and return when it has created the driver's pod."""
        application = self.get_application(name)
        pyspark = find_spec("pyspark")
        assert pyspark is not None and pyspark.origin is not None
        spark_home = Path(pyspark.origin).parent
        environment = {**os.environ, "SPARK_HOME": str(spark_home), "KUBECONFIG": str(self.plane.kubeconfig())}
        command = [str(spark_home / "bin" / "spark-submit"), *self.spark_submit_arguments(application)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=SUBMIT_TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr[-4000:]
        self.write_status(name, "SUBMITTED", executionAttempts=1, submissionAttempts=1)

    def update_status(self, name: str) -> str:
        """Write the state of the driver's pod to the SparkApplication's status, and return it."""
        pod = self.resources.list_objects("v1", "pods").get(f"{name}-driver")
        phase = (pod or {}).get("status", {}).get("phase")
        state = {"Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}.get(str(phase), "SUBMITTED")
        if (self.get_application(name).get("status") or {}).get("applicationState", {}).get("state") != state:
            self.write_status(name, state, executionAttempts=1, submissionAttempts=1)
        return state

    def write_status(self, name: str, state: str, **fields: object) -> None:
        path = f"/apis/{API_VERSION}/namespaces/{self.resources.namespace}/sparkapplications/{name}/status"
        status = {"applicationState": {"state": state}, "driverInfo": {"podName": f"{name}-driver"}, **fields}
        self.resources.api.request("PATCH", path, {"status": status})

    def spark_submit_arguments(self, application: Json) -> list[str]:
        """The arguments of spark-submit for a SparkApplication."""
        name, spec = application["metadata"]["name"], application["spec"]
        conf = {
            "spark.kubernetes.namespace": self.resources.namespace,
            "spark.kubernetes.container.image": spec["image"],
            "spark.kubernetes.container.image.pullPolicy": spec["imagePullPolicy"],
            "spark.kubernetes.submission.waitAppCompletion": "false",
            "spark.kubernetes.driver.pod.name": f"{name}-driver",
            "spark.kubernetes.authenticate.driver.serviceAccountName": spec["driver"]["serviceAccount"],
            **spec["sparkConf"],
        }
        for role in ("driver", "executor"):
            role_spec = spec[role]
            conf[f"spark.{role}.cores"] = str(role_spec["cores"])
            conf[f"spark.kubernetes.{role}.request.cores"] = role_spec["coreRequest"]
            conf[f"spark.{role}.memory"] = role_spec["memory"]
            for key, value in {**application["metadata"]["labels"], **role_spec["labels"]}.items():
                conf[f"spark.kubernetes.{role}.label.{key}"] = value
            template = self.folder / f"{role}.json"
            template.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **role_spec["template"]}))
            conf[f"spark.kubernetes.{role}.podTemplateFile"] = str(template)
            conf[f"spark.kubernetes.{role}.podTemplateContainerName"] = f"spark-kubernetes-{role}"
        conf["spark.executor.instances"] = str(spec["executor"]["instances"])
        settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        target = ["--master", f"k8s://{self.plane.admin.url}", "--deploy-mode", spec["mode"], "--name", name]
        return [*target, *settings, spec["mainApplicationFile"], *spec["arguments"]]
