"""`ottla up` with users: the example of a secured cluster, with real clients that its rules let in
and keep out, and users that are edited and removed.
"""

import json
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
import yaml
from kafka import KafkaConsumer

from tests.clients import librdkafka as rd
from tests.e2e.java_tools import run_java_tool
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, read_librdkafka_settings
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "secured"


def example(up: UpProcess, *, without: str = "") -> list[Json]:
    """The example's resources on a free port, except one User."""
    found: list[Json] = [it for file in sorted(EXAMPLE.glob("*.yaml")) for it in yaml.safe_load_all(file.read_text())]
    for it in found:
        if it["kind"] == "Cluster":
            it["spec"]["listeners"][0]["port"] = up.port
    return [it for it in found if (it["kind"], it["metadata"]["name"]) != ("User", without)]


def files_of(up: UpProcess, user: str) -> Path:
    return up.folder / ".ottla" / "secured" / "users" / user


def librdkafka(up: UpProcess, user: str) -> dict[str, Any]:
    return read_librdkafka_settings(files_of(up, user))


def produce(settings: dict[str, Any], topic: str = "orders") -> ck.KafkaError | None:
    return rd.produce_one(settings, topic)


def consume_one(settings: dict[str, Any], group: str) -> "ck.Message | ck.KafkaError | None":
    """The first event, a record or an error; None after 30 s without one."""
    additional = {"group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = ck.Consumer({**settings, **additional})
    consumer.subscribe(["orders"])
    try:
        message = consumer.poll(30)
        return message if message is None or message.error() is None else message.error()
    finally:
        consumer.close()


def is_refused(settings: dict[str, Any]) -> bool:
    """True if the login fails, False if other errors come first. Raises AssertionError if there is
    no error within 20 s.
    """
    errors: list[ck.KafkaError] = []
    client = ck.Producer({**settings, "error_cb": errors.append, "log_level": 0})
    client.poll(0)
    return bool(
        eventually(lambda: client.poll(0.1) or errors, within_s=20)
        and any(it.code() == ck.KafkaError._AUTHENTICATION for it in errors)
    )


def test_users_of_the_example_may_do_what_their_rules_say(up: UpProcess, tmp_path: Path) -> None:
    up.write_resources(*example(up))
    up.start()
    for user in ("shop", "billing"):
        up.wait_for_line(f"user {user}: password set for SCRAM-SHA-512")
    shop, billing = librdkafka(up, "shop"), librdkafka(up, "billing")
    assert produce(shop) is None
    refused = produce(billing)
    assert refused is not None and refused.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    message = consume_one(billing, "billing-1")
    assert isinstance(message, ck.Message) and message.value() == b"one"
    for settings, group in ((shop, "billing-2"), (billing, "another")):
        error = consume_one(settings, group)
        assert isinstance(error, ck.KafkaError), error
        assert error.code() in (
            ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
            ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
        )
    assert is_refused({**shop, "sasl.password": "wrong"})
    plain = KafkaConsumer(
        "orders",
        bootstrap_servers=billing["bootstrap.servers"],
        security_protocol=billing["security.protocol"],
        sasl_mechanism=billing["sasl.mechanism"],
        sasl_plain_username=billing["sasl.username"],
        sasl_plain_password=billing["sasl.password"],
        group_id="billing-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    assert next(iter(plain)).value == b"one"
    plain.close()
    listed = run_java_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", billing["bootstrap.servers"], "--list"),
        *("--command-config", str(files_of(up, "billing") / "client.properties")),
    )
    assert "orders" in listed.splitlines()
    for user in ("shop", "billing"):
        for file in files_of(up, user).iterdir():
            assert file.stat().st_mode & 0o077 == 0, "readable by its owner alone"
    assert up.stop() == 0
    output = "\n".join(up.lines) + (up.folder / ".ottla/secured/1/output.log").read_text()
    assert not any(it["sasl.password"] in output for it in (shop, billing))
    assert "Traceback" not in output


def test_removed_user_is_revoked_while_running_and_at_the_next_start(up: UpProcess) -> None:
    up.write_resources(*example(up))
    up.start()
    for user in ("shop", "billing"):
        up.wait_for_line(f"user {user}: password set")
    shop, billing = librdkafka(up, "shop"), librdkafka(up, "billing")
    up.write_resources(*example(up, without="shop"))
    up.wait_for_line("revoked, because no User has these names any more: shop")
    assert is_refused(shop)
    assert not files_of(up, "shop").exists()
    assert produce(billing, "orders.none") is not None
    up.stop()
    up.write_resources(*example(up, without="billing"))
    up.start()
    up.wait_for_line("revoked, because no User has these names any more: billing")
    up.wait_for_line("user shop: password set")
    assert is_refused(billing)
    assert produce(librdkafka(up, "shop")) is None
    internal = f"127.0.0.1:{up.port + 1}"
    login = up.folder / ".ottla" / "secured" / "inter-broker-login" / "client.properties"
    listed = up.run_ottla("acls", "list", "-o", "json", "--bootstrap", internal, "--command-config", str(login))
    assert {it["principal"] for it in json.loads(listed.stdout)} == {"User:shop"}, listed.stderr


def test_restart_keeps_passwords_and_an_open_listener_beside_rules_is_rejected(up: UpProcess) -> None:
    up.write_resources(*example(up))
    up.start()
    up.wait_for_line("user shop: password set")
    up.wait_for_line("user billing: password set")
    shop = librdkafka(up, "shop")
    up.stop()
    up.start()
    up.wait_for_line("the broker is ready")
    up.write_resources(*example(up, without="billing"))
    up.wait_for_line("revoked, because no User has these names any more: billing")
    assert librdkafka(up, "shop") == shop
    assert produce(shop) is None
    assert not any("password set" in line for line in up.lines)
    cluster, *rest = example(up)
    cluster["spec"]["listeners"].append({"name": "open", "port": up.port + 2})
    up.write_resources(cluster, *rest)
    up.wait_for_line("authorization type ACL needs authentication SCRAM or TLS on every listener")
    up.wait_for_line("nothing is changed")


@pytest.mark.slow
def test_running_cluster_is_secured_by_an_edit(up: UpProcess) -> None:
    resources = example(up)
    cluster = resources[0]
    listener = {"name": "clients", "port": up.port}
    opened = {**cluster, "spec": {"replicas": 1, "listeners": [listener]}}
    up.write_resources(opened, resources[1])
    up.start()
    up.wait_for_line("topic orders created")
    assert produce({"bootstrap.servers": up.bootstrap}) is None
    up.write_resources(*resources)
    up.wait_for_line("restarting broker 1")
    up.wait_for_line("user shop: password set")
    up.wait_for_line("user billing: password set")
    assert produce(librdkafka(up, "shop")) is None
    refused = produce({"bootstrap.servers": up.bootstrap})
    assert refused is not None, "clients without a login are not served"
    message = consume_one(librdkafka(up, "billing"), "billing-1")
    assert isinstance(message, ck.Message) and message.value() == b"one"
