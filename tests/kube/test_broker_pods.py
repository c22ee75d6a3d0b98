"""Broker pods on a real kubelet, with the project's image and without any right in Kubernetes."""

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.broker_pods import BrokerPods, find_controller
from tests.kube.cluster import Kubernetes
from tests.waiting import eventually


@pytest.mark.timeout(600)  # the image may have to be built
def test_a_broker_pod_serves_clients_and_recovers_its_records_after_a_restart(kube: Kubernetes) -> None:
    brokers = BrokerPods(kube.plane.admin, "one")
    brokers.create(1, {"offsets.topic.replication.factor": "1"})
    brokers.wait_until_ready(0)
    bootstrap = brokers.bootstrap(0)
    assert find_controller(bootstrap) == 0
    rd.create_topic(bootstrap, "durable")
    rd.produce(bootstrap, "durable", [Message(None, b"%d" % number, START_MS) for number in range(100)])

    before = brokers.get_pod(0)
    assert before is not None
    brokers.delete_pod(0)
    eventually(lambda: (brokers.get_pod(0) or before)["metadata"]["uid"] != before["metadata"]["uid"], within_s=60)
    brokers.wait_until_ready(0)
    values = [message.value() for message in rd.consume(brokers.bootstrap(0), "durable")]
    assert values == [b"%d" % number for number in range(100)]
    assert "ottla broker 0 ready on" in brokers.read_log(0)
