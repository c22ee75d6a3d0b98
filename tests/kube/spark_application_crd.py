"""A substitute for kubeflow's SparkApplication CRD with the same group, version, kind and status.

Its schema has the documented type of each field that the operator writes
(tests/unit/operator/spark_application_fields.py has the same as a table). The API server prunes all
other fields: a field unknown to kubeflow's operator is missing from its response.
"""

from typing import Final

from tests.kube.api_client import Json

NAME: Final = "sparkapplications.sparkoperator.k8s.io"

STRING: Json = {"type": "string"}
STRING_MAP: Json = {"type": "object", "additionalProperties": STRING}
INT32: Json = {"type": "integer", "format": "int32"}
POSITIVE_INT32: Json = {**INT32, "minimum": 1}
SECONDS: Json = {"type": "integer", "format": "int64", "minimum": 1}
ANY_OBJECT: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
POD_FIELDS: Json = {
    "cores": POSITIVE_INT32,
    "coreRequest": STRING,
    "memory": STRING,
    "labels": STRING_MAP,
    "template": ANY_OBJECT,
    "serviceAccount": STRING,
}


def object_schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def enum_schema(*allowed: str) -> Json:
    return {"type": "string", "enum": list(allowed)}


SPEC: Json = {
    **object_schema(
        type=enum_schema("Java", "Python", "Scala", "R"),
        mode=enum_schema("cluster", "client"),
        sparkVersion=STRING,
        image=STRING,
        imagePullPolicy=STRING,
        mainApplicationFile=STRING,
        arguments={"type": "array", "items": STRING},
        sparkConf=STRING_MAP,
        suspend={"type": "boolean"},
        restartPolicy=object_schema(
            type=enum_schema("Never", "Always", "OnFailure"),
            onFailureRetries={**INT32, "minimum": 0},
            onSubmissionFailureRetries={**INT32, "minimum": 0},
            onFailureRetryInterval=SECONDS,
            onSubmissionFailureRetryInterval=SECONDS,
        ),
        driver=object_schema(**POD_FIELDS),
        executor=object_schema(**POD_FIELDS, instances=POSITIVE_INT32),
    ),
    "required": ["driver", "executor", "mainApplicationFile", "sparkVersion", "type"],
}
STATUS: Json = {
    **object_schema(
        sparkApplicationId=STRING,
        submissionID=STRING,
        applicationState={**object_schema(state=STRING, errorMessage=STRING), "required": ["state"]},
        driverInfo=object_schema(podName=STRING),
        executorState=STRING_MAP,
        executionAttempts=INT32,
        submissionAttempts=INT32,
        lastSubmissionAttemptTime={"type": "string", "format": "date-time", "nullable": True},
        terminationTime={"type": "string", "format": "date-time", "nullable": True},
    ),
    "required": ["driverInfo"],
}
SCHEMA: Json = {
    **object_schema(spec=SPEC, status=STATUS, metadata={"type": "object"}),
    "required": ["spec"],
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
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}
