"""Requests about configs. Each function of `CONFIG_CASES` is named after an API, and runs in each
version of it.
"""

from collections.abc import Mapping
from typing import Any

from tests.clients.api_session import ApiSession
from tests.waiting import eventually_async

TOPIC, BROKER, LOGGER, GROUP, METRICS = 2, 4, 8, 32, 16


async def describe_configs(session: ApiSession) -> None:
    topic = await session.create_topic("there", retention_ms=1000)

    async def ask(case: str, kind: int, name: str, *keys: str, all_keys: bool = False, **more: Any) -> None:
        wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": None if all_keys else keys}
        await session.send_case(case, resources=[wanted], **more)

    some = ("retention.ms", "cleanup.policy", "compression.type", "min.insync.replicas", "max.message.bytes")
    await ask("of a topic", TOPIC, topic, *some)
    await ask("with synonyms", TOPIC, topic, *some, include_synonyms=True)
    await ask("with documentation", TOPIC, topic, *some, include_documentation=True)
    await ask("all of a topic", TOPIC, topic, all_keys=True)
    await ask("no keys", TOPIC, topic)
    await ask("unknown key", TOPIC, topic, "no.such.thing", "retention.ms")
    await ask("unknown topic", TOPIC, session.unique_name("unknown"), "retention.ms")
    await ask("a bad name", TOPIC, "a bad name", "retention.ms")
    await ask("no name", TOPIC, "", "retention.ms")
    broker_keys = ("log.retention.ms", "num.partitions", "message.max.bytes", "node.id")
    await ask("of the broker", BROKER, "1", *broker_keys, include_synonyms=True)
    await ask("of all brokers", BROKER, "", *broker_keys, include_synonyms=True)
    unknown_keys = ("a.plugin.url", "cleanup.policy")
    for name, of in (("1", "the broker"), ("", "all brokers")):
        await set_on_broker(session, name, dict.fromkeys(unknown_keys, "delete"))
        await ask(f"unknown settings of {of}", BROKER, name, *unknown_keys, include_synonyms=True)
        await ask(f"unknown settings of {of}, documented", BROKER, name, *unknown_keys, include_documentation=True)
        await set_on_broker(session, name, dict.fromkeys(unknown_keys))
    await ask("of another broker", BROKER, "2", "num.partitions")
    await ask("of a broker id that is no number", BROKER, "one", "num.partitions")
    await ask("unknown kind", 99, "x")
    await ask("kind 0", 0, "x")
    await ask("a group", GROUP, session.unique_name("group"), all_keys=True)
    await ask("a group without a name", GROUP, "", all_keys=True)
    await ask("client metrics", METRICS, session.unique_name("metrics"), all_keys=True)
    await session.send_case("no resource", resources=())


async def set_on_broker(session: ApiSession, broker: str, configs: Mapping[str, str | None]) -> None:
    """Alters configs of a broker and returns when it describes them; None removes a config."""
    changes = [{"name": key, "config_operation": value is None, "value": value} for key, value in configs.items()]
    wanted = {"resource_type": BROKER, "resource_name": broker, "configs": changes}
    await session.send("incremental_alter_configs", resources=[wanted], validate_only=False)
    shown = {key for key, value in configs.items() if value is not None}

    async def are_described() -> bool:
        keys = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": list(configs)}
        described = await session.send("describe_configs", resources=[keys])
        return {config.name for config in described.results[0].configs} == shown

    await eventually_async(are_described)


async def alter_configs(session: ApiSession) -> None:
    topic = await session.create_topic("there", retention_ms=1000)

    async def ask(case: str, kind: int, name: str, validate_only: bool = False, **configs: Any) -> None:
        pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        wanted = {"resource_type": kind, "resource_name": name, "configs": pairs}
        await session.send_case(case, resources=[wanted], validate_only=validate_only)

    await ask("a value", TOPIC, topic, retention_ms="2000")
    await ask("only validated", TOPIC, topic, True, retention_ms="3000")
    await ask("bad value", TOPIC, topic, retention_ms="soon")
    await ask("no value", TOPIC, topic, retention_ms=None)
    await ask("unknown key", TOPIC, topic, no_such_thing="1")
    await ask("unknown topic", TOPIC, session.unique_name("unknown"), retention_ms="1")
    await ask("a bad name", TOPIC, "a bad name", retention_ms="1")
    await ask("no name", TOPIC, "", retention_ms="1")
    await ask("back to nothing", TOPIC, topic)
    await ask("a static setting of a broker", BROKER, "1", node_id="2")
    await ask("a broker's value, only validated", BROKER, "1", True, message_max_bytes="2000000")
    await ask("all brokers', only validated", BROKER, "", True, message_max_bytes="2000000")
    await ask("bad value of all brokers", BROKER, "", message_max_bytes="much")
    await ask("another broker", BROKER, "2", True, message_max_bytes="2000000")
    await ask("a broker id that is no number", BROKER, "one", message_max_bytes="2000000")
    await ask("unknown kind", 99, "x", a="b")
    await ask("kind 0", 0, "x", a="b")
    # Not tested: one resource twice in a request. Kafka fails to write the response, and the
    # connection hangs.


async def incremental_alter_configs(session: ApiSession) -> None:
    topic = await session.create_topic("there", retention_ms=1000)
    SET, DELETE, APPEND, SUBTRACT = range(4)

    async def ask(
        case: str, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
    ) -> None:
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        wanted = {"resource_type": kind, "resource_name": name, "configs": configs}
        await session.send_case(case, resources=[wanted], validate_only=validate_only)

    await ask("set", TOPIC, topic, ("retention.ms", SET, "2000"))
    await ask("delete", TOPIC, topic, ("retention.ms", DELETE, None))
    await ask("delete what is not set", TOPIC, topic, ("retention.bytes", DELETE, None))
    await ask("append", TOPIC, topic, ("cleanup.policy", APPEND, "compact"))
    await ask("append what the list has", TOPIC, topic, ("cleanup.policy", APPEND, "compact"))
    await ask("subtract", TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact"))
    await ask("subtract what the list does not have", TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact"))
    await ask("subtract the last", TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))
    await ask("append to a config that is no list", TOPIC, topic, ("retention.ms", APPEND, "1"))
    await ask("subtract from a config that is no list", TOPIC, topic, ("retention.ms", SUBTRACT, "1"))
    await ask("append a bad word", TOPIC, topic, ("cleanup.policy", APPEND, "shred"))
    await ask("unknown operation", TOPIC, topic, ("retention.ms", 9, "1"))
    await ask("set nothing", TOPIC, topic, ("retention.ms", SET, None))
    await ask("append nothing", TOPIC, topic, ("cleanup.policy", APPEND, None))
    await ask("bad value", TOPIC, topic, ("retention.ms", SET, "soon"))
    await ask("value too small", TOPIC, topic, ("retention.ms", SET, "-2"))
    await ask("unknown key", TOPIC, topic, ("no.such.thing", SET, "1"))
    await ask("delete an unknown key", TOPIC, topic, ("no.such.thing", DELETE, None))
    await ask("one good, one bad", TOPIC, topic, ("retention.ms", SET, "1"), ("retention.bytes", SET, "x"))
    twice = ("retention.ms", SUBTRACT, "1")
    await ask("the same key twice, subtracted from a config that is no list", TOPIC, topic, twice, twice)
    await ask("the same key twice", TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    await ask("set and delete", TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    await ask("only validated", TOPIC, topic, ("retention.ms", SET, "5"), validate_only=True)
    await ask("only validated, bad", TOPIC, topic, ("retention.ms", SET, "soon"), validate_only=True)
    await ask("no changes", TOPIC, topic)
    await ask("unknown topic", TOPIC, session.unique_name("unknown"), ("retention.ms", SET, "1"))
    await ask("unknown topic, bad value", TOPIC, session.unique_name("unknown"), ("retention.ms", SET, "soon"))
    await ask("a bad name", TOPIC, "a bad name", ("retention.ms", SET, "1"))
    await ask("no name", TOPIC, "", ("retention.ms", SET, "1"))
    await ask("a static setting of the broker", BROKER, "1", ("node.id", SET, "2"))
    await ask("an unknown setting of the broker", BROKER, "1", ("no.such", SET, "2"), validate_only=True)
    for broker, of in (("1", "the broker"), ("", "all brokers")):
        for key, value in (("cleanup.policy", "delete"), ("a.plugin.url", "here"), ("num.io.threads", "8")):
            await ask(f"{key} of {of}", BROKER, broker, (key, SET, value))
            await ask(f"{key} of {of}, deleted", BROKER, broker, (key, DELETE, None))
    await ask(
        "a setting that Kafka reads only at its start",
        BROKER,
        "1",
        ("process.roles", SET, "broker"),
        validate_only=True,
    )
    await ask("a setting that Kafka no longer has", BROKER, "1", ("zookeeper.connect", SET, "x"), validate_only=True)
    change = ("message.max.bytes", SET, "2000000")
    await ask("the broker, only validated", BROKER, "1", change, validate_only=True)
    await ask("all brokers, only validated", BROKER, "", change, validate_only=True)
    await ask("bad value of all brokers", BROKER, "", ("message.max.bytes", SET, "much"))
    await ask("another broker", BROKER, "2", change, validate_only=True)
    await ask("a broker id that is no number", BROKER, "one", change)
    await ask("unknown kind", 99, "x", ("a", SET, "b"))
    await ask("kind 0", 0, "x", ("a", SET, "b"))
    await ask("unknown level", LOGGER, "1", ("kafka", SET, "LOUD"))
    group = session.unique_name("group")
    await ask("a group", GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))
    await ask("a group's bad value", GROUP, group, ("consumer.session.timeout.ms", SET, "long"))
    await ask("a group's unknown key", GROUP, group, ("retention.ms", SET, "1"))
    wanted = {"resource_type": TOPIC, "resource_name": topic, "configs": ()}
    await session.send_case("twice in one request", resources=[wanted, wanted])


async def list_config_resources(session: ApiSession) -> None:
    await session.create_topic("there")
    if session.version == 0:
        await session.send_case("client metrics")
        return
    await session.send_case("topics", resource_types=[TOPIC], only_own=True)
    await session.send_case("brokers", resource_types=[BROKER])
    await session.send_case("loggers", resource_types=[LOGGER])
    await session.send_case("client metrics", resource_types=[METRICS])
    await session.send_case("groups", resource_types=[GROUP], only_own=True)
    await session.send_case("an unknown kind", resource_types=[99])
    await session.send_case("topics and an unknown kind", resource_types=[TOPIC, 99], only_own=True)


CONFIG_CASES = (describe_configs, alter_configs, incremental_alter_configs, list_config_resources)
