"""The Kubernetes objects of a Pipeline, compared with golden files and by their rules."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.plan.objects.desired import find_unsupported as find_unsupported_cluster
from ottla_operator.plan.objects.differences import find_difference, with_applied_hash
from ottla_operator.plan.objects.pod_defaults import PodDefaults
from ottla_operator.plan.objects.services import in_cluster_bootstrap
from ottla_operator.plan.pipeline.desired import (
    LaunchInputs,
    choose_launcher,
    desired_objects,
    find_unsupported,
)
from ottla_operator.plan.pipeline.pods import BrokerConnection, PipelineImage, runner_arguments
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.validation import validate_resource
from ottla_spark.definition import parse_pipeline
from tests.unit.operator import samples
from tests.unit.operator.golden_files import GOLDEN, BlockDumper, check_golden_file, golden_cases
from tests.unit.operator.kubernetes_pipelines import (
    CHECKPOINT,
    IMAGE,
    LAUNCH_INPUTS,
    driver_definition,
    pipeline_with,
    valid_pipeline,
)
from tests.unit.operator.spark_application_fields import find_undocumented_fields

PIPELINES = GOLDEN / "pipelines"
HADOOP = {"type": "hadoop", "warehouse": "w"}
ON_DRIVER = LaunchInputs("Driver", LAUNCH_INPUTS.connection)


def driver(it: Pipeline, **inputs: Any) -> dict[str, Any]:
    application: dict[str, Any] = desired_objects(
        it, IMAGE, LaunchInputs("Driver", LAUNCH_INPUTS.connection, **inputs)
    ).application
    return application


def application(it: Pipeline) -> dict[str, Any]:
    found: dict[str, Any] = desired_objects(it, IMAGE, LAUNCH_INPUTS).application
    return found


@pytest.mark.parametrize("case", golden_cases(PIPELINES))
def test_objects_of_a_pipeline_are_those_of_the_golden_file(case: str) -> None:
    it = valid_pipeline(yaml.safe_load((PIPELINES / f"{case}.in.yaml").read_text()))
    assert it.spec.launcher
    inputs = LaunchInputs(
        it.spec.launcher, LAUNCH_INPUTS.connection, LAUNCH_INPUTS.claim_modes if case == "spark-operator" else ()
    )
    found = desired_objects(it, IMAGE, inputs)
    check_golden_file(PIPELINES / f"{case}.out.yaml", found.all, BlockDumper)
    assert desired_objects(it, IMAGE, inputs) == found


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"state": "suspended"},
        {"trigger": {"availableNow": True}},
        {"checkpoint": {"path": "s3a://bucket/folder"}},
        {"spark": {"driver": {"cores": 2}, "executor": {"cores": "1500m"}, "conf": {"spark.executor.instances": "3"}}},
    ],
)
def test_fields_of_a_spark_application_are_documented(spec: dict[str, Any]) -> None:
    assert find_undocumented_fields(application(pipeline_with(**spec))) == []


def test_undocumented_fields_are_found() -> None:
    it = application(pipeline_with())
    it["spec"]["driver"]["core"] = 1
    it["spec"]["restartPolicy"]["type"] = "Sometimes"
    it["spec"]["executor"]["cores"] = "1"
    assert [path for path, _ in find_undocumented_fields(it)] == [
        "spec.driver.core",
        "spec.executor.cores",
        "spec.restartPolicy.type",
    ]


def test_stream_is_always_restarted_and_a_batch_only_on_failure() -> None:
    assert application(pipeline_with())["spec"]["restartPolicy"]["type"] == "Always"
    batch = pipeline_with(trigger={"availableNow": True})
    assert application(batch)["spec"]["restartPolicy"]["type"] == "OnFailure"
    name = desired_objects(batch, IMAGE, ON_DRIVER).settings
    assert driver(batch)["spec"]["replicas"] == 1
    assert driver(batch, finished=name)["spec"]["replicas"] == 0
    assert driver(batch, finished="another")["spec"]["replicas"] == 1, "the spec that has finished is another one"


def test_suspended_pipeline_has_the_same_objects_without_a_driver() -> None:
    running, suspended = (application(pipeline_with(state=it)) for it in ("running", "suspended"))
    assert not running["spec"]["suspend"] and suspended["spec"]["suspend"]
    suspended["spec"]["suspend"] = False
    assert running == suspended
    running, suspended = (driver(pipeline_with(state=it)) for it in ("running", "suspended"))
    assert suspended["spec"]["replicas"] == 0
    assert running["spec"]["template"] == suspended["spec"]["template"]


def test_changed_definition_changes_the_driver() -> None:
    it = desired_objects(pipeline_with(stop={"graceful": "1m"}), IMAGE, ON_DRIVER)
    parsed = parse_pipeline(driver_definition(it), Path("/etc/ottla"))
    assert (parsed.name, parsed.spec.state, parsed.spec.stop.graceful) == ("hourly", "running", "1m")
    other = desired_objects(pipeline_with(transforms=[{"name": "late", "sql": "SELECT 1"}]), IMAGE, ON_DRIVER)
    assert it.settings != other.settings and other.settings in str(other.application)


def test_executors_run_on_the_node_of_the_driver_if_the_volume_has_one_writer() -> None:
    def runs_on_one_node(**checkpoint: Any) -> bool:
        modes = checkpoint.pop("modes", ())
        return "podAffinity" in str(
            desired_objects(
                pipeline_with(checkpoint=checkpoint), IMAGE, LaunchInputs("Driver", BrokerConnection("b:1"), modes)
            ).prerequisites
        )

    assert runs_on_one_node(pvc={"size": "1Gi"})
    assert runs_on_one_node(pvc={"claimName": "mine"}, modes=("ReadWriteOnce",))
    assert not runs_on_one_node(pvc={"claimName": "mine"}, modes=("ReadWriteMany",))
    assert not runs_on_one_node(path="s3a://bucket/folder")


def test_secrets_of_sinks_are_files_of_the_driver_alone() -> None:
    def jdbc(name: str, secret: str) -> dict[str, Any]:
        target = {"url": "jdbc:postgresql://db/flights", "table": name, "secretRef": {"name": secret}}
        return {"from": "late", "name": name, "jdbc": target}

    pipeline = pipeline_with(sinks=[jdbc("a", "first.db"), jdbc("b", "other"), jdbc("c", "other")])
    for objects in (desired_objects(pipeline, IMAGE, it) for it in (ON_DRIVER, LAUNCH_INPUTS)):
        text = json.dumps(objects.application)
        assert text.count('"mountPath": "/etc/ottla-secrets/first.db"') == 1
        assert text.count('"mountPath": "/etc/ottla-secrets/other"') == 1
        assert text.count('"secretName": "other"') == 1
        assert '"--secrets", "/etc/ottla-secrets"' in text
        (config,) = (it for it in objects.all if it["kind"] == "ConfigMap")
        assert "ottla-secrets" not in config["data"]["executor.json"]
    assert "ottla-secrets" not in str(desired_objects(pipeline_with(), IMAGE, ON_DRIVER).application)


def test_checkpoint_is_retained_when_the_pipeline_is_deleted() -> None:
    kept = [
        it for it in desired_objects(pipeline_with(), IMAGE, ON_DRIVER).all if "ownerReferences" not in it["metadata"]
    ]
    assert [it["kind"] for it in kept] == ["PersistentVolumeClaim"]


def test_resources_are_the_same_with_both_launchers() -> None:
    it = pipeline_with(
        spark={"driver": {"cores": "250m"}, "conf": {"spark.driver.memory": "2g", "spark.executor.memory": "1g"}}
    )
    (container,) = driver(it)["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "250m", "memory": "2867Mi"}, "limits": {"memory": "2867Mi"}}
    spec = application(it)["spec"]
    assert {key: spec["driver"][key] for key in ("cores", "coreRequest", "memory")} == {
        "cores": 1,
        "coreRequest": "250m",
        "memory": "2048m",
    }
    assert spec["executor"]["memory"] == "1024m"
    assert (
        driver_definition(desired_objects(it, IMAGE, ON_DRIVER))["spec"]["spark"]["conf"]["spark.driver.memory"]
        == "2048m"
    )


def test_driver_mounts_the_secrets_of_object_stores_and_finds_its_checkpoint_there() -> None:
    bucket = {"bucket": "state", "secretRef": {"name": "other"}}
    it = pipeline_with(s3={"endpoint": "http://store:9000", "secretRef": {"name": "main"}}, checkpoint={"s3": bucket})
    found = desired_objects(it, IMAGE, ON_DRIVER)
    assert not find_unsupported(it)
    assert not [one for one in found.prerequisites if one["kind"] == "PersistentVolumeClaim"]
    pod = found.application["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = container["args"]
    assert arguments[arguments.index("--checkpoint") + 1] == f"s3a://state/{it.name}"
    assert arguments[arguments.index("--secrets") + 1] == "/etc/ottla-secrets"
    mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one.get("secret", {}).get("secretName") for one in pod["volumes"]}
    assert [volumes[mounted[f"/etc/ottla-secrets/{name}"]] for name in ("main", "other")] == ["main", "other"]
    spec = driver_definition(found)["spec"]
    assert (spec["s3"], spec["checkpoint"]) == (it.spec.to_json()["s3"], {"s3": bucket})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"checkpoint": None}, "spec.checkpoint is missing"),
        ({"checkpoint": {"path": "here"}}, "spec.checkpoint.path: 'here' is lost with the pod"),
        ({"transforms": [{"name": "late", "python": "late.py:late"}]}, r"spec.transforms\[0\].python: 'late.py:late'"),
        (
            {"sinks": [{"from": "late", "parquet": {"path": "out"}}]},
            r"spec.sinks\[0\].parquet.path: 'out' is lost with the pod",
        ),
        (
            {"sinks": [{"from": "late", "parquet": {"path": "s3a://b/v2"}, "compareWith": "v1"}]},
            r"spec.sinks\[0\].compareWith: 'v1' is lost with the pod",
        ),
        (
            {"sinks": [{"from": "late", "iceberg": {"table": "a.b.c", "catalog": HADOOP}}]},
            r"spec.sinks\[0\].iceberg.catalog.warehouse: 'w' is lost with the pod",
        ),
        ({"sinks": [{"from": "late", "delta": {"path": "t"}}]}, r"spec.sinks\[0\].delta.path: 't' is lost"),
        (
            {"spark": {"conf": {"spark.jars.packages": "a:b:1"}}},
            "spec.spark.conf: spark.jars.packages: set by the operator on Kubernetes",
        ),
        ({"spark": {"conf": {"spark.driver.memory": "much"}}}, "'much' is not an amount of memory"),
    ],
)
def test_unsupported_fields_are_reported(spec: dict[str, Any], message: str) -> None:
    whole = {**samples.pipeline()["spec"], "checkpoint": CHECKPOINT, **spec}
    it = valid_pipeline(
        {**samples.pipeline(), "spec": {key: value for key, value in whole.items() if value is not None}}
    )
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(find_unsupported(it))
    assert not find_unsupported(pipeline_with())


def test_example_is_supported_on_kubernetes() -> None:
    folder = Path(__file__).parents[3] / "examples" / "flights"
    for path in sorted(folder.glob("*.yaml")):
        for data in yaml.safe_load_all(path.read_text()):
            assert not validate_resource(data)
            if data["kind"] == "Pipeline":
                assert not find_unsupported(valid_pipeline(data))
            if data["kind"] == "Cluster":
                it = Cluster.parse({**data, "metadata": {**data["metadata"], "namespace": "events"}})
                assert not find_unsupported_cluster(it)


def test_launcher_is_chosen_by_spec_then_existing_objects_then_the_cluster() -> None:
    for served in (True, False):
        assert (
            choose_launcher(pipeline_with(launcher="Driver"), ["SparkOperator"], has_spark_operator=served) == "Driver"
        )
        assert (
            choose_launcher(pipeline_with(launcher="SparkOperator"), (), has_spark_operator=served) == "SparkOperator"
        )
        assert choose_launcher(pipeline_with(), ["Driver"], has_spark_operator=served) == "Driver", (
            "the launcher of a running pipeline does not change"
        )
    assert choose_launcher(pipeline_with(), (), has_spark_operator=True) == "SparkOperator"
    assert choose_launcher(pipeline_with(), (), has_spark_operator=False) == "Driver"


def test_bootstrap_address_is_that_of_an_internal_listener() -> None:
    listeners = [{"name": "out", "port": 9094, "type": "NodePort"}, {"name": "plain", "port": 9092}]
    data = samples.cluster(listeners=listeners)
    it = Cluster.parse({**data, "metadata": {**data["metadata"], "namespace": "events"}})
    assert in_cluster_bootstrap(it) == "demo-plain-bootstrap.events.svc:9092"


@given(
    conf=st.dictionaries(
        st.sampled_from(["spark.executor.memory", "spark.driver.extraClassPath", "spark.a", "spark.b"]),
        st.sampled_from(["1g", "2g"]),
    ),
    state=st.sampled_from(["running", "suspended"]),
    launched=st.sampled_from([LAUNCH_INPUTS, ON_DRIVER]),
)
@settings(max_examples=60, deadline=None)
def test_objects_do_not_depend_on_the_order_of_settings(
    conf: dict[str, str], state: str, launched: LaunchInputs
) -> None:
    one = desired_objects(pipeline_with(state=state, spark={"conf": conf}), IMAGE, launched)
    other = desired_objects(pipeline_with(state=state, spark={"conf": dict(reversed(conf.items()))}), IMAGE, launched)
    assert json.dumps(one.all) == json.dumps(other.all)
    assert all(
        find_difference(with_applied_hash(it), json.loads(json.dumps(with_applied_hash(it)))) is None for it in one.all
    )


def test_a_pod_template_is_added_to_drivers_and_executors_of_both_launchers() -> None:
    added = {
        "metadata": {"annotations": {"team": "data"}, "labels": {"app.kubernetes.io/name": "mine", "cost": "7"}},
        "spec": {
            "imagePullSecrets": [{"name": "registry"}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "nodeSelector": {"disk": "fast"},
            "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
            "containers": [
                {
                    "name": "spark",
                    "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}],
                    "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
                    "securityContext": {"readOnlyRootFilesystem": False},
                }
            ],
        },
    }
    it = pipeline_with(spark={"podTemplate": added})
    of_operator = application(it)["spec"]
    templates = [
        (driver(it)["spec"]["template"], "spark-kubernetes-driver"),
        (of_operator["driver"]["template"], "spark-kubernetes-driver"),
        (of_operator["executor"]["template"], "spark-kubernetes-executor"),
    ]
    for template, name in templates:
        spec = template["spec"]
        assert template["metadata"]["annotations"] == {"team": "data"}
        assert template["metadata"]["labels"].items() >= {"app.kubernetes.io/name": "ottla", "cost": "7"}.items()
        assert spec["imagePullSecrets"] == [{"name": "registry"}] and spec["nodeSelector"] == {"disk": "fast"}
        assert spec["tolerations"] == added["spec"]["tolerations"]  # type: ignore[index]
        assert {volume["name"] for volume in spec["volumes"]} >= {"tmp", "keys"}
        (container,) = spec["containers"]
        assert container["name"] == name
        assert {env["name"] for env in container["env"]} >= {"TOKEN"}
        assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/tmp", "/keys"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is False
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "podTemplate" not in json.dumps(driver_definition(desired_objects(it, IMAGE, LAUNCH_INPUTS)))


def test_options_of_the_operator_reach_every_pod_of_a_pipeline() -> None:
    image = PipelineImage("spark:1", "Always", PodDefaults(("registry",), assigns_uid=True))
    of_operator = desired_objects(pipeline_with(), image, LAUNCH_INPUTS).application["spec"]
    of_driver = desired_objects(pipeline_with(), image, ON_DRIVER).application["spec"]["template"]
    for template in (of_driver, of_operator["driver"]["template"], of_operator["executor"]["template"]):
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & template["spec"]["securityContext"].keys()


def test_driver_gets_the_address_of_the_registry() -> None:
    connection = BrokerConnection("b:9092", registry="http://demo-schema-registry.events.svc:8081")
    command = runner_arguments(pipeline_with(), connection, "local")
    assert command[command.index("--registry") + 1] == connection.registry
    assert "--registry" not in runner_arguments(pipeline_with(), BrokerConnection("b:9092"), "local")


def test_pipeline_with_schemas_of_the_registry_uses_it() -> None:
    assert not pipeline_with().uses_registry
    ddl = {"type": "json", "schema": "a INT"}
    assert not pipeline_with(sources={"flights": {"topic": "flights", "format": ddl}}).uses_registry
    for source in (
        {"format": {"type": "avro", "schemaRef": {}}},
        {"format": {"type": "protobuf", "schemaRef": {}}},
        {"format": {"type": "json", "schemaRef": {}}},
        {"format": ddl, "key": "k", "keyFormat": {"type": "avro", "schemaRef": {}}},
    ):
        assert pipeline_with(sources={"flights": {"topic": "flights", **source}}).uses_registry
    sink = {"from": "flights", "topic": "t", "key": ["a"]}
    assert not pipeline_with(sinks=[{**sink, "format": {"type": "json"}, "keyFormat": {"type": "json"}}]).uses_registry
    for format_ in ({"type": "protobuf"}, {"type": "json", "register": True}, {"type": "json", "subject": "s"}):
        assert pipeline_with(sinks=[{**sink, "format": format_}]).uses_registry
        assert pipeline_with(sinks=[{**sink, "keyFormat": format_}]).uses_registry
