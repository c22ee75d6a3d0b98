"""The Kubernetes objects of a Cluster, compared with golden files and by their rules."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.wire import properties
from ottla_operator.plan.objects.broker_pod import BrokerImages, StartInputs, pod_hash, pod_template
from ottla_operator.plan.objects.config import format_properties, parse_properties, read_settings
from ottla_operator.plan.objects.desired import DesiredObjects, ObjectInputs, desired_objects, find_unsupported
from ottla_operator.plan.objects.differences import APPLIED_HASH, find_difference, with_applied_hash
from ottla_operator.plan.objects.pod_defaults import PodDefaults
from ottla_operator.plan.objects.pod_template_merge import strategic_merge
from ottla_operator.plan.objects.services import (
    ServiceAddress,
    ServiceAddresses,
    bootstrap_addresses,
    in_cluster_registry,
)
from ottla_operator.plan.settings import changed_settings
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator.golden_files import GOLDEN, PlainDumper, check_golden_file, golden_cases
from tests.unit.operator.kubernetes_clusters import STORAGE, cluster_with, valid_cluster
from tests.unit.operator.samples import cluster

IMAGES = BrokerImages("registry.example/ottla-broker", "0.1.0")


def addresses(data: dict[str, Any]) -> ServiceAddresses:
    return ServiceAddresses({name: ServiceAddress(it.get("nodePort"), it.get("host")) for name, it in data.items()})


@pytest.mark.parametrize("case", golden_cases(GOLDEN))
def test_objects_of_a_cluster_are_those_of_the_golden_file(case: str) -> None:
    resource, *observed = yaml.safe_load_all((GOLDEN / f"{case}.in.yaml").read_text())
    it = valid_cluster(resource)
    given = ObjectInputs(it.spec.replicas, addresses(observed[0] if observed else {}))
    found = desired_objects(it, IMAGES, given)
    check_golden_file(GOLDEN / f"{case}.out.yaml", found.all, PlainDumper)
    assert desired_objects(it, IMAGES, given) == found


def lowest_violating_count(constraint: dict[str, Any], pods_on_nodes: list[int]) -> int:
    """The smallest number of pods on a node with which the scheduler refuses another pod there, by
    Kubernetes' definition of skew.
    """
    lowest = 0 if len(pods_on_nodes) < constraint["minDomains"] else min(pods_on_nodes)
    return lowest + int(constraint["maxSkew"])


@pytest.mark.parametrize("pods_on_nodes", [[0], [1, 2, 2], [2, 2, 2], [3, 3], [1] * 999 + [0, 0]], ids=str)
def test_no_node_takes_more_brokers_than_the_cluster_says(pods_on_nodes: list[int]) -> None:
    template = pod_template(cluster_with(replicas=6, brokersPerNode=2), IMAGES, "settings", StartInputs())
    constraints = template["spec"]["topologySpreadConstraints"]
    strict = [it for it in constraints if it["whenUnsatisfiable"] == "DoNotSchedule"]
    assert [it["topologyKey"] for it in strict] == ["kubernetes.io/hostname"]
    assert lowest_violating_count(strict[0], pods_on_nodes) == 2
    keys = [(it["topologyKey"], it["whenUnsatisfiable"]) for it in constraints]
    assert len(keys) == len(set(keys)) == 2  # the API server refuses a pod with two equal ones


def objects(it: Cluster, broker_count: int | None = None, known: ServiceAddresses | None = None) -> DesiredObjects:
    return desired_objects(it, IMAGES, ObjectInputs(broker_count or it.spec.replicas, known or ServiceAddresses()))


def hash_of(it: Cluster) -> str:
    found = objects(it).stateful_set
    assert found
    return pod_hash(found["spec"]["template"])


def test_hash_of_the_pods_changes_with_the_image_and_not_with_settings() -> None:
    before = hash_of(cluster_with(config={"num.partitions": 3}))
    assert hash_of(cluster_with(config={"num.partitions": 4})) == before
    assert hash_of(cluster_with(image="other:1")) != before
    assert hash_of(cluster_with(replicas=5)) == before


def test_name_of_the_config_map_changes_with_the_settings() -> None:
    one, other = (objects(cluster_with(config={"num.partitions": it})).config for it in (3, 4))
    assert one and other and one["metadata"]["name"] != other["metadata"]["name"]
    assert read_settings(one, 1)["num.partitions"] == "3"


def test_another_broker_does_not_change_the_config_of_the_others() -> None:
    """The config of a broker has no addresses of other brokers but the bootstrap servers of the
    quorum.
    """
    it = cluster_with(replicas=3, listeners=[{"name": "out", "port": 9094, "type": "NodePort"}])
    known = ServiceAddresses({f"demo-out-{broker}": ServiceAddress(30000 + broker) for broker in range(1, 5)})
    three, four = (objects(it, count, known).config for count in (3, 4))
    assert three and four and three["metadata"]["name"] != four["metadata"]["name"]
    for broker in (1, 2, 3):
        before, after = (read_settings(it, broker) for it in (three, four))
        assert before.keys() == after.keys() and not changed_settings(before, after)


def test_brokers_wait_until_their_addresses_are_known() -> None:
    it = cluster_with(replicas=2, listeners=[{"name": "out", "port": 9094, "type": "LoadBalancer"}])
    found = objects(it, known=ServiceAddresses({"demo-out-1": ServiceAddress(host="10.1.1.1")}))
    assert found.stateful_set is None and found.config is None
    assert found.waiting_for_services == ("demo-out-2",)


def test_every_type_of_listener_has_a_bootstrap_address_once_it_is_known() -> None:
    listeners = [
        {"name": "plain", "port": 9092},
        {"name": "out", "port": 9094, "type": "LoadBalancer"},
        {"name": "node", "port": 9095, "type": "NodePort"},
    ]
    it = cluster_with(listeners=listeners)
    known = {"demo-out-bootstrap": ServiceAddress(host="2001:db8::1"), "demo-node-bootstrap": ServiceAddress(30001)}
    assert bootstrap_addresses(it, ServiceAddresses(known)) == {
        "plain": "demo-plain-bootstrap.events.svc:9092",
        "out": "[2001:db8::1]:9094",
        "node": "<node>:30001",
    }
    assert set(bootstrap_addresses(it, ServiceAddresses())) == {"plain"}


def test_inter_broker_port_of_running_brokers_stays_open_while_it_changes() -> None:
    demo = cluster_with(listeners=[{"name": "plain", "port": 9091}])
    (policy,) = (
        it
        for it in desired_objects(demo, IMAGES, ObjectInputs(1, ports_in_use=frozenset({9091}))).prerequisites
        if it["kind"] == "NetworkPolicy"
    )
    assert [it["port"] for it in policy["spec"]["ingress"][1]["ports"]] == [9090, 9091]


def test_a_listener_with_peers_is_open_to_these_alone() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}]
    listeners = [{"name": "plain", "port": 9092}, {"name": "orders", "port": 9094, "networkPolicyPeers": peers}]
    (policy,) = (it for it in objects(cluster_with(listeners=listeners)).all if it["kind"] == "NetworkPolicy")
    by_port = {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert by_port[9092] is None and by_port[9094] == peers


def test_the_schema_registry_has_a_service_and_its_port_is_open() -> None:
    found = objects(cluster_with(schemaRegistry={"port": 8085}))
    assert (
        in_cluster_registry(cluster_with(schemaRegistry={"port": 8085}))
        == "http://demo-schema-registry.events.svc:8085"
    )
    assert in_cluster_registry(cluster_with()) == ""
    (service,) = (it for it in found.all if it["metadata"]["name"] == "demo-schema-registry")
    assert service["spec"]["ports"][0]["port"] == 8085
    (policy,) = (it for it in found.all if it["kind"] == "NetworkPolicy")
    assert 8085 in [port["port"] for port in policy["spec"]["ingress"][0]["ports"]]
    (settings,) = (it for it in found.all if it["kind"] == "ConfigMap")
    assert "schema.registry.listener=\\:8085" in str(settings) or "schema.registry.listener=:8085" in str(settings)
    assert not [it for it in objects(cluster_with()).all if it["metadata"]["name"] == "demo-schema-registry"]


def test_every_object_is_owned_by_the_cluster() -> None:
    assert all("ownerReferences" in it["metadata"] for it in objects(cluster_with()).all)


def test_brokers_have_no_rights_and_no_token() -> None:
    found = objects(cluster_with())
    assert not {it["kind"] for it in found.all} & {"Role", "RoleBinding", "Lease"}
    (account,) = (it for it in found.all if it["kind"] == "ServiceAccount")
    assert found.stateful_set
    pod = found.stateful_set["spec"]["template"]["spec"]
    assert account["automountServiceAccountToken"] is False and pod["automountServiceAccountToken"] is False


def test_only_the_first_broker_founds_and_only_while_the_cluster_does_not_exist() -> None:
    it = cluster_with(replicas=3)
    founding, later = (
        desired_objects(it, IMAGES, ObjectInputs(3, state_annotations=state)).config
        for state in ({"ottla.dev/founding": "true"}, {})
    )
    assert founding and later
    assert [read_settings(founding, broker).get("cluster.found") for broker in (1, 2, 3)] == ["true", None, None]
    assert [read_settings(later, broker).get("cluster.found") for broker in (1, 2, 3)] == [None, None, None]
    servers = ",".join(f"demo-{broker}.demo-brokers.events.svc:9091" for broker in (1, 2, 3))
    assert read_settings(later, 2)["controller.quorum.bootstrap.servers"] == servers


def test_a_cluster_on_kubernetes_needs_storage() -> None:
    assert "spec.storage is missing" in find_unsupported(valid_cluster(cluster()))
    assert find_unsupported(cluster_with()) == ""


def test_names_that_cannot_begin_service_names_are_rejected() -> None:
    for name in ("a.b", "1st", "a" * 41):
        assert "metadata.name" in find_unsupported(
            valid_cluster({**cluster(), "metadata": {"name": name}}, storage=STORAGE)
        )
    assert not find_unsupported(cluster_with())


def test_pod_template_is_merged_by_names() -> None:
    ours = {"containers": [{"name": "broker", "image": "a", "env": [{"name": "A", "value": "1"}]}], "tolerations": [1]}
    theirs = {
        "containers": [{"name": "sidecar"}, {"name": "broker", "env": [{"name": "B", "value": "2"}]}],
        "tolerations": [2],
        "nodeSelector": {"disk": "fast"},
    }
    assert strategic_merge(ours, theirs) == {
        "containers": [
            {"name": "broker", "image": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "sidecar"},
        ],
        "tolerations": [2],
        "nodeSelector": {"disk": "fast"},
    }


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=4))
@settings(max_examples=150, deadline=None)
def test_formatted_settings_are_parsed_alike_by_the_operator_and_by_a_broker(wanted: dict[str, str]) -> None:
    text = format_properties(wanted)
    assert parse_properties(text) == wanted
    assert {it.key: it.value for it in properties.parse_properties(text)} == wanted


JSON = st.recursive(
    st.one_of(st.booleans(), st.integers(-3, 3), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)


@given(spec=st.dictionaries(st.text(max_size=3), JSON, max_size=4), added=JSON)
@settings(max_examples=150, deadline=None)
def test_applied_object_does_not_differ_after_additions_of_others(spec: dict[str, Any], added: Any) -> None:
    wanted = with_applied_hash({"kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
    live = {
        **wanted,
        "metadata": {**wanted["metadata"], "uid": "u"},
        "spec": {"another-field": added, **spec},
        "status": added,
    }
    assert find_difference(wanted, live) is None


def test_path_of_a_difference_is_named() -> None:
    it = objects(cluster_with(resources={"requests": {"cpu": "1000m"}})).stateful_set
    assert it
    wanted = with_applied_hash(it)
    assert find_difference(wanted, None) == ""
    live = yaml.safe_load(yaml.safe_dump(wanted))
    (container,) = live["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = "1"
    assert find_difference(wanted, live) is None
    container["image"] = "evil"
    assert find_difference(wanted, live) == "spec.template.spec.containers.0.image"
    live["spec"]["template"]["spec"]["containers"].append({"name": "injected"})
    assert find_difference(wanted, live) == "spec.template.spec.containers"


def test_removed_field_is_a_difference() -> None:
    more = {"kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": 1, "b": 2}}
    less = {**more, "spec": {"a": 1}}
    assert find_difference(with_applied_hash(less), with_applied_hash(more)) == f"metadata.annotations.{APPLIED_HASH}"


def test_options_of_the_operator_reach_every_broker() -> None:
    images = BrokerImages("broker", "1", "Always", PodDefaults(("registry",), assigns_uid=True))
    it = valid_cluster(cluster(storage={"size": "1Gi"}, rack={"topologyKey": "zone"}))
    stateful_set = desired_objects(it, images, ObjectInputs(1)).stateful_set
    assert stateful_set is not None
    spec = stateful_set["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert {it["imagePullPolicy"] for it in (*spec["containers"], *spec["initContainers"])} == {"Always"}
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & spec["securityContext"].keys()
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_brokers_request_resources_unless_the_cluster_says_otherwise() -> None:
    def resources(**spec: Any) -> Any:
        stateful_set = desired_objects(
            valid_cluster(cluster(storage={"size": "1Gi"}, **spec)), IMAGES, ObjectInputs(1)
        ).stateful_set
        assert stateful_set is not None
        return stateful_set["spec"]["template"]["spec"]["containers"][0]["resources"]

    assert resources() == {"requests": {"cpu": "100m", "memory": "256Mi"}}
    assert resources(resources={"limits": {"memory": "1Gi"}}) == {"limits": {"memory": "1Gi"}}
    assert resources(resources={}) == {}
