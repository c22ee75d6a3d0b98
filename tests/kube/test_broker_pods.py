"""Brokers on a real kubelet, in the image that people build, without any right in Kubernetes."""

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.broker_pods import BrokerPods
from tests.kube.cluster import Kube
from tests.waiting import eventually


@pytest.mark.timeout(600)  # the image may have to be built
def test_a_broker_pod_serves_clients_without_a_token(kube: Kube) -> None:
    brokers = BrokerPods(kube.plane.admin, "one")
    brokers.make(1, {"offsets.topic.replication.factor": "1"})
    brokers.wait_ready(0)
    bootstrap = brokers.bootstrap(0)
    assert brokers.controller(bootstrap) == 0
    made = brokers.pod(0)
    assert made and not [it for it in made["spec"]["volumes"] if "projected" in it], "no token is mounted"
    rd.create_topic(bootstrap, "kept")
    rd.produce(bootstrap, "kept", [Message(None, b"%d" % number, START_MS) for number in range(100)])

    before = brokers.pod(0)
    assert before is not None
    brokers.delete(0)
    eventually(lambda: (brokers.pod(0) or before)["metadata"]["uid"] != before["metadata"]["uid"], within_s=60)
    brokers.wait_ready(0)
    values = [message.value() for message in rd.consume(brokers.bootstrap(0), "kept")]
    assert values == [b"%d" % number for number in range(100)]
    assert "ottla broker 0 ready on" in brokers.log(0)
