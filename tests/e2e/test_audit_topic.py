"""The audit log in a topic of a cluster whose brokers restart one after the other."""

import asyncio
import json
from collections.abc import Sequence

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.errors import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clusters import run_cluster

TOPIC = "audit"


def create_topics_through(broker: BrokerProcess, names: Sequence[str]) -> None:
    """Creates each topic by a request of its own, for which this broker writes the audit event,
    even if another broker is the controller.
    """

    async def run() -> None:
        channel = await open_channel(broker.host, broker.port, "auditing")
        for name in names:
            topic = CreatableTopic(
                name=TopicName(name), num_partitions=i32(1), replication_factor=i16(1), assignments=(), configs=()
            )
            answer = await channel.send(CreateTopicsRequest(topics=(topic,)))
            assert answer.topics[0].error_code is ErrorCode.none, answer
        channel.close()

    asyncio.run(run())


def test_no_line_is_lost_while_brokers_restart() -> None:
    created = set()
    with run_cluster("ottla", 3, audit_topic=TOPIC) as cluster:
        for number, broker in cluster.brokers.items():
            names = [f"of-{number}-{index}" for index in range(12)]
            create_topics_through(broker, names)
            created |= set(names)
            assert broker.stop() == 0
            broker.start()
            cluster.wait_until_healthy()
        lines = [json.loads(value or b"{}") for value in rd.values_of(rd.consume(cluster.bootstrap, TOPIC))]
    assert {line["resource"]["name"] for line in lines if line["request"] == "CreateTopics"} >= created
    assert {line["principal"] for line in lines} == {"User:ANONYMOUS"}
