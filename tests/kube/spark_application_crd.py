"""A substitute for kubeflow's SparkApplication CRD with the same group, version, kind and status.

Its schema has the documented type of each field that the operator writes
(tests/unit/operator/spark_application_fields.py has the same as a table). The API server prunes all
other fields: a field unknown to kubeflow's operator is missing from its response.
"""

from typing import Final

from tests.kube.api import Api, Json
from tests.waiting import eventually

NAME: Final = "sparkapplications.sparkoperator.k8s.io"
PATH: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "object", "additionalProperties": TEXT}
INT32: Json = {"type": "integer", "format": "int32"}
AT_LEAST_ONE: Json = {**INT32, "minimum": 1}
SECONDS: Json = {"type": "integer", "format": "int64", "minimum": 1}
AS_IT_IS: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
POD: Json = {
    "cores": AT_LEAST_ONE,
    "coreRequest": TEXT,
    "memory": TEXT,
    "labels": TEXTS,
    "template": AS_IT_IS,
    "serviceAccount": TEXT,
}


def of(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def chosen(*allowed: str) -> Json:
    return {"type": "string", "enum": list(allowed)}


SPEC: Json = {
    **of(
        type=chosen("Java", "Python", "Scala", "R"),
        mode=chosen("cluster", "client"),
        sparkVersion=TEXT,
        image=TEXT,
        imagePullPolicy=TEXT,
        mainApplicationFile=TEXT,
        arguments={"type": "array", "items": TEXT},
        sparkConf=TEXTS,
        suspend={"type": "boolean"},
        restartPolicy=of(
            type=chosen("Never", "Always", "OnFailure"),
            onFailureRetries={**INT32, "minimum": 0},
            onSubmissionFailureRetries={**INT32, "minimum": 0},
            onFailureRetryInterval=SECONDS,
            onSubmissionFailureRetryInterval=SECONDS,
        ),
        driver=of(**POD),
        executor=of(**POD, instances=AT_LEAST_ONE),
    ),
    "required": ["driver", "executor", "mainApplicationFile", "sparkVersion", "type"],
}
STATUS: Json = {
    **of(
        sparkApplicationId=TEXT,
        submissionID=TEXT,
        applicationState={**of(state=TEXT, errorMessage=TEXT), "required": ["state"]},
        driverInfo=of(podName=TEXT),
        executorState=TEXTS,
        executionAttempts=INT32,
        submissionAttempts=INT32,
        lastSubmissionAttemptTime={"type": "string", "format": "date-time", "nullable": True},
        terminationTime={"type": "string", "format": "date-time", "nullable": True},
    ),
    "required": ["driverInfo"],
}
CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": NAME,
        # The API server requires this annotation for groups below k8s.io.
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubeflow/spark-operator/pull/1298"},
    },
    "spec": {
        "group": "sparkoperator.k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "SparkApplication",
            "listKind": "SparkApplicationList",
            "plural": "sparkapplications",
            "singular": "sparkapplication",
            "shortNames": ["sparkapp"],
        },
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {**of(spec=SPEC, status=STATUS, metadata={"type": "object"}), "required": ["spec"]}},
            }
        ],
    },
}  # fmt: skip


def install(api: Api) -> None:
    api.ask("APPLY", f"{PATH}?fieldManager=tests&force=true", CRD)

    def established() -> bool:
        conditions = (api.get(PATH) or {}).get("status", {}).get("conditions") or []
        return any(it["type"] == "Established" and it["status"] == "True" for it in conditions)

    eventually(established, message=f"{NAME} is served")
