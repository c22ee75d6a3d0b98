"""Recorded requests of real clients: a relay in front of a broker stores each distinct
request.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import confluent_kafka as ck
import kafka
from confluent_kafka.admin import ConfigResource

from tests.clients import librdkafka as rd
from tests.clients.group_members import FAST_SETTINGS


async def record_requests(broker_port: int, relay_port: int, session: Callable[[], None]) -> Sequence[bytes]:
    """The distinct requests, without their sizes, that clients send while `session` runs.

    The broker must advertise the relay's port.
    """
    found: dict[bytes, None] = {}

    async def relay(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection("127.0.0.1", broker_port)
        back = asyncio.create_task(_copy(broker, to_client))
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = await client.readexactly(4)
                request = await client.readexactly(int.from_bytes(size))
                found[request] = None
                to_broker.write(size + request)
                await to_broker.drain()
        to_broker.close()
        await back

    async with await asyncio.start_server(relay, "127.0.0.1", relay_port):
        await asyncio.to_thread(session)
    return list(found)


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            to.write(data)
            await to.drain()
    to.close()


def run_typical_session(bootstrap: str, topic: str) -> None:
    """A typical session of librdkafka and kafka-python: topics, records, a group,
    offsets, configs.
    """
    rd.create_topic(bootstrap, topic, 2, retention_ms=3_600_000)
    admin = rd.admin_client(bootstrap)
    admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)])
    admin.incremental_alter_configs([rd.config_change(topic, "retention.ms", "7200000")])
    for settings in ({"compression.type": "lz4", "enable.idempotence": True}, {"acks": "1"}):
        rd.produce(bootstrap, topic, rd.numbered_messages(0, 20), **settings)
    with rd.open_consumer(bootstrap, topic, **FAST_SETTINGS) as reader:
        reader.subscribe([topic])
        while rd.poll_message(reader).offset() < 39:
            pass
        reader.commit(asynchronous=False)
        reader.committed([ck.TopicPartition(topic, 0)], timeout=20)
        reader.offsets_for_times([ck.TopicPartition(topic, 0, 0)], timeout=20)
    admin.list_consumer_groups().result(20)
    admin.describe_consumer_groups([topic])[topic].result(20)
    admin.delete_consumer_groups([topic])[topic].result(20)
    sender = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    for number in range(20):
        sender.send(topic, b"%d" % number)
    sender.close()
    receiver = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"{topic}-python", auto_offset_reset="earliest"
    )
    for _ in range(20):
        next(receiver)
    receiver.commit()
    receiver.close()
