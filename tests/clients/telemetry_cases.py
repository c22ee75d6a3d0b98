"""Requests of clients that push their own metrics (KIP-714). Apache Kafka serves them only with a
plugin, which `add_telemetry_plugin` compiles.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from kio.static.primitive import i32

from tests.brokers import BrokerProcess
from tests.clients.api_session import ApiSession
from tests.jars import kafka_classpath, skip_or_fail_in_ci
from tests.waiting import eventually_async

PLUGIN = Path(__file__).with_name("java") / "TelemetryPlugin.java"
CLIENT_METRICS_RESOURCE = 16
NO_ID, RESERVED_ID = UUID(int=0), UUID(int=1)
MAX_BYTES = 1 << 20  # telemetry.max.bytes


def add_telemetry_plugin(broker: BrokerProcess) -> None:
    """Compiles the plugin, and makes a broker of Apache Kafka use it from its next start. Without
    `javac` it skips the test, or fails in CI.
    """
    compiler, folder, command = shutil.which("javac"), broker.folder / "plugin", broker.command
    if compiler is None:
        skip_or_fail_in_ci("no `javac` on PATH, which compiles a plugin of Apache Kafka")
    subprocess.run([compiler, "-cp", kafka_classpath(), "-d", str(folder), str(PLUGIN)], check=True)

    def with_plugin(broker: BrokerProcess) -> Sequence[str]:
        words = list(command(broker))
        words[words.index("-cp") + 1] += f":{folder}"
        return words

    broker.command = with_plugin
    broker.settings["metric.reporters"] = PLUGIN.stem


async def subscribe(session: ApiSession, name: str, connection: str, metrics: str, interval_ms: int) -> None:
    """Subscribes to these metrics of the clients on `connection`. Returns when the broker asks
    such a client for them.
    """
    configs = {"metrics": metrics, "interval.ms": str(interval_ms), "match": f"client_id=asking{connection}"}
    resource = {
        "resource_type": CLIENT_METRICS_RESOURCE,
        "resource_name": session.unique_name(name),
        "configs": [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()],
    }
    await session.send("incremental_alter_configs", resources=[resource], validate_only=False)

    async def is_subscribed() -> bool:
        found = await session.send("get_telemetry_subscriptions", connection=connection, client_instance_id=uuid4())
        return set(metrics.split(",")) <= set(found.requested_metrics)

    await eventually_async(is_subscribed)


async def get_telemetry_subscriptions(session: ApiSession) -> None:
    found = await session.send("get_telemetry_subscriptions", client_instance_id=NO_ID)
    assert found.client_instance_id not in (None, NO_ID, RESERVED_ID)
    # The subscription's id depends on the client's random id.
    session.store("a new client", replace(found, subscription_id=i32(0)))
    known: dict[str, Any] = {"client_instance_id": UUID(int=0x7001)}
    await session.send_case("without a subscription", **known)
    await session.send_case("again at once", **known)
    await subscribe(session, "some", "-get", "c.d,a.b", 60_000)
    known = {"connection": "-get", "client_instance_id": UUID(int=0x7002)}
    await session.send_case("with a subscription", **known)
    await session.send_case("with a subscription, again at once", **known)
    await subscribe(session, "all", "-get", "*", 30_000)
    await session.send_case("with another subscription", **known)
    await session.send_case("with two subscriptions", connection="-get", client_instance_id=UUID(int=0x7003))


async def push_telemetry(session: ApiSession) -> None:
    await subscribe(session, "pushed", "-push", "a.b", 60_000)

    async def push(case: str, instance: int, plus: int = 0, **fields: Any) -> None:
        """Asks for the client's subscription, then sends two equal pushes. `plus` is added to the
        subscription's id.
        """
        client: dict[str, Any] = {"connection": "-push", "client_instance_id": UUID(int=instance)}
        found = await session.send("get_telemetry_subscriptions", **client)
        await session.send_case(case, **client, subscription_id=found.subscription_id + plus, **fields)
        await session.send_case(f"{case}, again", **client, subscription_id=found.subscription_id + plus, **fields)

    for what, instance_id in {"without an instance id": NO_ID, "a reserved id": RESERVED_ID}.items():
        await session.send_case(what, client_instance_id=instance_id)
    await session.send_case("a client that has not asked", client_instance_id=UUID(int=0x8001))
    await push("metrics", 0x8002)
    await push("an outdated subscription", 0x8003, plus=1)
    await push("an unknown compression", 0x8004, compression_type=9)
    await push("too many bytes", 0x8005, metrics=bytes(MAX_BYTES + 1))
    await push("the last push", 0x8006, terminating=True)


TELEMETRY_CASES = (get_telemetry_subscriptions, push_telemetry)
