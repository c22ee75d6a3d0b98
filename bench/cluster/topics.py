"""Topics and first records, retried until a starting cluster accepts them."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from confluent_kafka.admin import NewTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.records import Record, encode_batch
from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster

PAUSE_S = 0.005
ATTEMPT_S = 2.0  # for a broker that accepts a request and does not respond


async def wait_until_topic_created(bootstrap: str, name: str, replicas: int, *, within_s: float) -> None:
    """Creates a topic with one partition, and tries again until the cluster has created it. Raises
    TimeoutError.
    """
    await _retry(lambda: _try_once(bootstrap, name, replicas, produce=False), within_s)


async def wait_for_first_ack(bootstrap: str, name: str, replicas: int, *, within_s: float) -> None:
    """Creates a topic with one partition, and returns when a record is acknowledged in it. Raises
    TimeoutError.
    """
    await _retry(lambda: _try_once(bootstrap, name, replicas, produce=True), within_s)


async def _retry(attempt: Callable[[], Awaitable[bool]], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while True:
            if await attempt():
                return
            await asyncio.sleep(PAUSE_S)


async def _try_once(bootstrap: str, name: str, replicas: int, *, produce: bool) -> bool:
    try:
        async with Client.connect(bootstrap, timeout_s=ATTEMPT_S) as client:
            await _create_with_client(client, name, replicas)
            if produce:
                await client.produce(name, 0, encode_batch([Record(int(time.time() * 1000), None, b"first")]))
            return True
    except (OSError, KafkaError):
        return False


async def _create_with_client(client: Client, name: str, replicas: int) -> None:
    wanted = CreatableTopic(
        name=TopicName(name), num_partitions=i32(1), replication_factor=i16(replicas), assignments=(), configs=()
    )
    request = CreateTopicsRequest(topics=(wanted,), timeout=to_timedelta_field(ATTEMPT_S), validate_only=False)
    (answer,) = (await client.send_to_controller(request)).topics
    if answer.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
        raise KafkaError(answer.error_code, answer.error_message or "")


def create_topic(cluster: ProcessCluster, topic: str, partitions: int) -> None:
    """Creates a topic with three replicas and returns when all of them are in sync."""
    client = rd.admin_client(cluster.bootstrap)
    client.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=60)[topic].result(60)
    cluster.wait_until_healthy()
