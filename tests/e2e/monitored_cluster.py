"""What a real Prometheus scrapes in tests: brokers with load, a mirror, the endpoints of an
operator and of a pipeline.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.static.primitive import f64

from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kube.metrics import Metrics
from ottla_operator.kube.metrics import serve as serve_operator_metrics
from ottla_spark.http_server import serve_progress
from ottla_spark.progress_snapshot import ProgressSnapshot
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.background_producer import produce_in_background
from tests.e2e.mirroring import create_topic, mirror_topics
from tests.kube.certificates import create_certificate_authority
from tests.ports import free_port
from tests.prometheus import Target

NAMESPACE, CLUSTER, PIPELINE, GROUP, TOPIC = "shop", "orders", "hourly", "billing", "payments"
MIRRORED_TOPIC: Final = "invoices"
THROTTLED_CLIENT: Final = "greedy"
PAUSE_S: Final = 0.2


@contextmanager
def run_monitored_cluster(folder: Path) -> Iterator[list[Target]]:
    """Yields the endpoints of two brokers, one of which mirrors the other, of an operator and of a
    pipeline.
    """
    with ExitStack() as stack:
        source_http, target_http = free_port(), free_port()
        source = stack.enter_context(run_ottla_broker(http_listener=f"127.0.0.1:{source_http}"))
        target = stack.enter_context(run_secured_broker(folder, target_http))
        create_topic(source, MIRRORED_TOPIC, 2)
        create_topic(target, TOPIC, 2)
        mirror_topics(source, target, "west")
        asyncio.run(throttle_client(target))
        exceed_quota(target)
        stack.enter_context(produce_slowly(source, MIRRORED_TOPIC))
        stack.enter_context(produce_slowly(target, TOPIC))
        stack.enter_context(consume_in_background(target))
        operator = stack.enter_context(run_operator_metrics())
        pipeline = stack.enter_context(serve_progress(("127.0.0.1", 0), running_pipeline()))
        of_cluster = {"namespace": NAMESPACE, "cluster": CLUSTER}
        yield [
            Target(target_http, of_cluster | {"pod": "orders-0"}),
            Target(source_http, {"namespace": NAMESPACE, "cluster": "source", "pod": "source-0"}),
            Target(operator, {"namespace": NAMESPACE, "pod": "ottla-operator-0"}),
            Target(pipeline, {"namespace": NAMESPACE, "pod": "hourly-driver"}),
        ]


@contextmanager
def run_secured_broker(folder: Path, http_port: int) -> Iterator[BrokerProcess]:
    """A broker that syncs every record and has a second listener, with TLS."""
    authority = create_certificate_authority(folder / "tls", ["127.0.0.1"], ["localhost"])
    with run_ottla_broker(start=False, http_listener=f"127.0.0.1:{http_port}", log_flush_interval_messages=1) as broker:
        broker.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},TLS://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.write_keystore()),
        }
        broker.start()
        yield broker


async def throttle_client(broker: BrokerProcess) -> None:
    entity = (EntityData(entity_type="client-id", entity_name=THROTTLED_CLIENT),)
    quota = OpData(key="producer_byte_rate", value=f64(100.0), remove=False)
    request = AlterClientQuotasRequest(entries=(EntryData(entity=entity, ops=(quota,)),), validate_only=False)
    async with Client.connect(broker.bootstrap) as client:
        response = await client.send(request)
    assert [one.error_code for one in response.entries] == [ErrorCode.none]


def exceed_quota(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": THROTTLED_CLIENT})
    producer.produce(TOPIC, b"x" * 10_000)
    assert producer.flush(30) == 0


@contextmanager
def produce_slowly(broker: BrokerProcess, topic: str) -> Iterator[None]:
    settings = {"linger.ms": "0", "enable.idempotence": "false"}
    with produce_in_background(
        broker.bootstrap, topic, 2, str, lambda _: None, lambda _: None, pause_s=PAUSE_S, settings=settings
    ):
        yield


@contextmanager
def consume_in_background(broker: BrokerProcess) -> Iterator[None]:
    """A member of GROUP that commits every 200 ms."""
    stopped = threading.Event()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}

    def consume() -> None:
        consumer = Consumer(settings | {"auto.commit.interval.ms": 200})
        consumer.subscribe([TOPIC])
        while not stopped.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def run_operator_metrics() -> Iterator[int]:
    """Yields the port of an active operator's metrics, which count about ten successful reconciles
    of Topics and ten failed ones of Clusters per second.
    """
    metrics = Metrics(lambda: {"Topic": 3, "Cluster": 1})
    metrics.is_active = metrics.is_ready = True
    port, started, stopped = free_port(), threading.Event(), threading.Event()

    async def serve() -> None:
        runner = await serve_operator_metrics(metrics, "127.0.0.1", port)
        started.set()
        while not stopped.is_set():
            metrics.count_reconcile("Topic", True, 0.01)
            metrics.count_reconcile("Cluster", False, 0.01)
            metrics.count_write("ConfigMap")
            await asyncio.sleep(0.1)
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    started.wait()
    try:
        yield port
    finally:
        stopped.set()
        thread.join()


def running_pipeline() -> ProgressSnapshot:
    lag = {"seconds": 2.5, "records": 7, "partitions": {TOPIC: {"0": {"records": 7}}}}
    rejected = {("departures", "delay_is_sane"): 1}
    return ProgressSnapshot(PIPELINE, "running", rows=10, written=9, dead_letters=1, rejected=rejected, lag=lag)
