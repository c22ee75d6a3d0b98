"""The operator secures the connections between a Cluster's brokers by logins and TLS, with real
brokers as processes: from the start, and by an edit while they run.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import topics
from ottla_operator.kafka.client import Unreachable, connect
from ottla_operator.plan.inter_broker_login import InterBrokerLogin, observed_login
from ottla_operator.plan.inter_broker_tls import InterBrokerTls, secure_operator
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.config import read_settings
from tests.e2e.process_kubelet import ProcessKubelet, operator_login, run_with_cluster

SECURED: dict[str, Any] = {
    "listeners": [{"name": "clients", "port": 9094, "authentication": "SCRAM"}],
    "authorization": {"type": "ACL"},
}
OPEN: dict[str, Any] = {"listeners": [{"name": "clients", "port": 9094}], "authorization": {"type": "None"}}
SECRET = "demo-inter-broker-login"


def logins(kubelet: ProcessKubelet) -> list[InterBrokerLogin]:
    """The inter-broker login of each broker's pod, by its settings."""
    config_maps = kubelet.api.of("ConfigMap")
    mounted = [it["spec"]["volumes"][0]["configMap"]["name"] for it in kubelet.api.of("Pod").values()]
    return [observed_login(read_settings(config_maps[it], 1)) for it in mounted]


async def accepted_by_brokers(kubelet: ProcessKubelet, security: ClientSecurity) -> list[bool]:
    """For each broker, True if it lets a client in on the inter-broker listener."""
    found = []
    for pod in kubelet.api.of("Pod").values():
        try:
            async with connect(f"{pod['status']['podIP']}:9091", security=security, timeout_s=10) as client:
                await topics.list_topics(client)
                found.append(True)
        except (KafkaError, Unreachable):
            found.append(False)
    return found


def test_a_new_cluster_is_never_open(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        assert logins(kubelet) == 3 * [InterBrokerLogin.REQUIRED]
        assert await accepted_by_brokers(kubelet, UNSECURED) == [False, False, False]
        assert await accepted_by_brokers(kubelet, operator_login(kubelet)) == [True, True, True]
        assert kubelet.created_pods == ["demo-1", "demo-2", "demo-3"]
        values = kubelet.secret(SECRET)
        texts = [
            str(it) for kind in ("ConfigMap", "StatefulSet", "Pod", "Cluster") for it in kubelet.api.of(kind).values()
        ]
        texts += kubelet.events
        assert not [it for it in texts for key in ("broker.password", "operator.password") if values[key] in it]

    run_with_cluster(tmp_path, 3, scenario, **SECURED)


@pytest.mark.slow
def test_running_brokers_are_secured_and_opened_by_edits(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        assert logins(kubelet) == 3 * [InterBrokerLogin.NONE] and not kubelet.api.of("Secret")
        kubelet.put_topic("orders", partitions=3, replicas=3)
        await kubelet.wait_until_ready("Topic", "orders")
        kubelet.edit_spec("Cluster", "demo", **SECURED)
        await kubelet.wait_until(
            lambda: kubelet.is_ready() and {*logins(kubelet)} == {InterBrokerLogin.REQUIRED}, within_s=150
        )
        assert await accepted_by_brokers(kubelet, UNSECURED) == [False, False, False]
        # The last broker without a login may require logins at once, with one restart, not two.
        restarts = Counter(kubelet.created_pods[3:])
        assert sorted(restarts.values()) in ([1, 2, 2], [2, 2, 2]), kubelet.created_pods
        login = operator_login(kubelet)
        async with connect(f"{kubelet.api.of('Pod')['demo-1']['status']['podIP']}:9091", security=login) as client:
            (orders,) = [it for it in await topics.list_topics(client) if it.name == "orders"]
        assert all(len(it.isr) == 3 for it in orders.partitions)
        kubelet.edit_spec("Cluster", "demo", **OPEN)
        await kubelet.wait_until(
            lambda: kubelet.is_ready() and {*logins(kubelet)} == {InterBrokerLogin.NONE}, within_s=150
        )
        assert await accepted_by_brokers(kubelet, UNSECURED) == [True, True, True]

    run_with_cluster(tmp_path, 3, scenario, **OPEN)


def test_a_lost_secret_restarts_no_broker_and_is_generated_again_once_no_broker_runs(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        secret = kubelet.api.objects.pop(("Secret", "events", SECRET))
        kubelet.edit_spec("Cluster", "demo", config={"num.io.threads": 9})
        await kubelet.wait_until(lambda: kubelet.condition("Cluster", "demo").get("reason") == "LoginUnusable")
        assert "was deleted: restore it" in kubelet.condition("Cluster", "demo")["message"]
        assert kubelet.created_pods == ["demo-1"] and not kubelet.api.of("Secret")
        kubelet.api.objects["Secret", "events", SECRET] = secret
        await kubelet.wait_until_ready()
        assert all(await accepted_by_brokers(kubelet, operator_login(kubelet)))
        del kubelet.api.objects["Secret", "events", SECRET]
        del kubelet.api.objects["Pod", "events", "demo-1"]
        await kubelet.wait_until(lambda: kubelet.is_ready() and SECRET in kubelet.api.of("Secret"), within_s=90)
        assert kubelet.secret(SECRET)["operator.password"] not in str(secret)
        assert all(await accepted_by_brokers(kubelet, operator_login(kubelet)))

    run_with_cluster(tmp_path, 1, scenario, **SECURED)


SECURED_BY_TLS = SECURED | {"tls": {"issuer": "Internal", "interBroker": True}}


def stages(kubelet: ProcessKubelet) -> set[str]:
    """Stages of TLS between brokers that the pods are annotated with; "" for a pod without one."""
    return {it["metadata"]["annotations"].get(names.TLS, "") for it in kubelet.api.of("Pod").values()}


def over_tls(kubelet: ProcessKubelet, security: ClientSecurity) -> ClientSecurity:
    authorities = kubelet.secret("demo-certificates")["ca.crt"]
    return secure_operator(security, [InterBrokerTls.REQUIRED], authorities, "demo-1.demo-brokers.events.svc")


def test_a_new_cluster_has_tls_between_brokers_from_the_start(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        assert stages(kubelet) == {"Required"}
        assert await accepted_by_brokers(kubelet, operator_login(kubelet)) == [False]
        assert await accepted_by_brokers(kubelet, over_tls(kubelet, UNSECURED)) == [False]
        assert await accepted_by_brokers(kubelet, over_tls(kubelet, operator_login(kubelet))) == [True]
        kubelet.put_topic("orders", partitions=1, replicas=1)
        await kubelet.wait_until_ready("Topic", "orders")
        assert kubelet.created_pods == ["demo-1"]

    run_with_cluster(tmp_path, 1, scenario, **SECURED_BY_TLS)


@pytest.mark.slow
def test_running_brokers_get_tls_and_logins_by_an_edit_and_lose_tls_by_another(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("orders", partitions=3, replicas=3)
        await kubelet.wait_until_ready("Topic", "orders")
        kubelet.edit_spec("Cluster", "demo", **SECURED_BY_TLS)
        await kubelet.wait_until(lambda: kubelet.is_ready() and stages(kubelet) == {"Required"}, within_s=150)
        assert {*logins(kubelet)} == {InterBrokerLogin.REQUIRED}
        login = operator_login(kubelet)
        assert await accepted_by_brokers(kubelet, login) == [False, False, False]
        assert await accepted_by_brokers(kubelet, over_tls(kubelet, login)) == [True, True, True]
        # Logins and TLS came together: no broker was restarted more than twice for both.
        assert max(Counter(kubelet.created_pods[3:]).values()) == 2, kubelet.created_pods
        kubelet.edit_spec("Cluster", "demo", tls={"secretRef": {"name": "another"}, "interBroker": True})
        await kubelet.wait_until(lambda: kubelet.condition("Cluster", "demo").get("reason") == "CertificateUnusable")
        assert "interBroker: false" in kubelet.condition("Cluster", "demo")["message"]
        kubelet.edit_spec("Cluster", "demo", tls={"issuer": "Internal"})
        await kubelet.wait_until(lambda: kubelet.is_ready() and stages(kubelet) == {""}, within_s=150)
        assert await accepted_by_brokers(kubelet, login) == [True, True, True]

    run_with_cluster(tmp_path, 3, scenario, **OPEN)
