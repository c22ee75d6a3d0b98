"""A fake kubelet for API servers without nodes: it creates pods in the state that a kubelet reports
for running ones. One pod stands for a real broker process.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.kube.api_client import Json
from tests.kube.namespace_client import NamespaceClient
from tests.waiting import eventually


def create_ready_pod(resources: NamespaceClient, name: str, template: Json, ip: str) -> None:
    """Creates a pod from a template and writes the status of a running, ready pod at `ip`."""
    path = f"/api/v1/namespaces/{resources.namespace}/pods"
    spec = {
        **template["spec"],
        "nodeName": "no-such-node",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    spec.pop("serviceAccountName", None)  # no controller creates accounts or tokens
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations") if key in template["metadata"]}
    resources.api.request("POST", path, {"metadata": {**metadata, "name": name}, "spec": spec})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": ready}
    resources.api.request("PATCH", f"{path}/{name}/status", {"status": status})


@contextmanager
def run_broker_process(host: str = "127.9.1.1", settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A broker process at `host` and the port of a Cluster's internal listener, where the operator
    connects too.
    """
    with run_ottla_broker(start=False) as broker:
        broker.host, broker.port = host, 9091
        broker.settings |= settings or {}
        broker.start()
        yield broker


def create_cluster_with_broker(
    resources: NamespaceClient, broker: BrokerProcess, name: str = "demo", **spec: object
) -> None:
    """Creates a Cluster whose only broker is the given process; returns when its pod exists. Needs
    a running operator.
    """
    root = f"/api/v1/namespaces/{resources.namespace}/serviceaccounts"
    resources.api.request("POST", root, {"metadata": {"name": "default"}})
    resources.create("Cluster", name, {"replicas": 1, "storage": {"size": "1Gi"}, **spec})
    stateful_set = eventually(
        lambda: resources.list_objects("apps/v1", "statefulsets").get(name),
        message="the operator creates a StatefulSet",
    )
    assert stateful_set is not None
    template = stateful_set["spec"]["template"]
    template["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
    create_ready_pod(resources, f"{name}-1", template, broker.host)
