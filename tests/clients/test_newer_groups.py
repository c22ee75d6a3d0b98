"""Clients configured for the consumer group protocol of KIP-848, which is not supported, fail with
a clear error.
"""

import subprocess

import confluent_kafka as ck

from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.jars import java_command
from tests.waiting import eventually


def test_clients_get_an_error_for_the_newer_group_protocol(new_broker: NewBroker, classpath: str) -> None:
    with new_broker(group_coordinator_rebalance_protocols="classic") as broker:
        rd.produce(broker.bootstrap, "topic", rd.numbered_messages(0, 3))
        wished = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer", "log_level": 0}
        reader = ck.Consumer(wished)
        reader.subscribe(["topic"])
        try:
            message = eventually(lambda: reader.poll(1), message="an error of the consumer")
            error = message.error()
            assert error.code() == ck.KafkaError._FATAL
            assert "API version not supported" in error.str()
        finally:
            reader.close()
        command = java_command(
            classpath, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap
        )
        command += ["--topic", "topic", "--consumer-property", "group.protocol=consumer", "--timeout-ms", "20000"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "UnsupportedVersionException" in said.stdout + said.stderr, said
        assert rd.values_of(rd.consume(broker.bootstrap, "topic")) == [it.value for it in rd.numbered_messages(0, 3)]
