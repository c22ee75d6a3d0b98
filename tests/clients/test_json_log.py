"""The log of a broker as JSON."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers import BrokerProcess, ottla_command, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.clients.test_sasl import SCRAM, SaslBroker, login_settings, set_password
from tests.ports import free_port
from tests.waiting import eventually

PASSWORD = "hunter2"


def json_log_command(broker: BrokerProcess) -> Sequence[str]:
    return [*ottla_command(broker), "--log-format", "json"]


def read_lines(broker: BrokerProcess) -> list[dict[str, Any]]:
    """The lines of the log. Raises ValueError for one that is not JSON."""
    return [json.loads(line) for line in (broker.folder / "broker.log").read_text().splitlines()]


def test_every_line_is_json_with_the_request_and_without_passwords() -> None:
    login = free_port()
    with run_ottla_broker(start=False) as broker:
        broker.command = json_log_command
        broker.settings |= {**login_settings(broker.port, login), "super.users": "User:ANONYMOUS"}
        broker.start()
        secured = SaslBroker(broker, f"127.0.0.1:{login}", AdminClient({"bootstrap.servers": broker.bootstrap}))
        set_password(secured, "alice", PASSWORD, SCRAM["SCRAM-SHA-512"])
        rd.create_topic(broker.bootstrap, "orders")
        rd.produce(broker.bootstrap, "orders", [Message(None, b"a record", START_MS)])
        consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        assert eventually(partial(consumer.poll, 1.0), within_s=60).error() is None
        consumer.close()
        lines = read_lines(broker)
        joins = [line for line in lines if line.get("request") == "JoinGroup" and "rebalance" in line["message"]]
        assert joins and all(isinstance(line["correlationId"], int) for line in joins)
        assert {(line["principal"], line["host"], line["node"]) for line in joins} == {
            ("User:ANONYMOUS", "127.0.0.1", 1)
        }
        created = [line["audit"] for line in lines if line.get("audit", {}).get("request") == "CreateTopics"]
        assert [event["resource"]["name"] for event in created] == ["orders"]
        assert broker.stop() == 0
        text = (broker.folder / "broker.log").read_text()
        assert PASSWORD not in text and "bobs" not in text
        assert all({"time", "level", "logger"} <= line.keys() for line in read_lines(broker))


@pytest.mark.parametrize("setting", ["listeners=nonsense", "no.such.setting=1"])
def test_reason_why_a_broker_does_not_start_is_json_too(setting: str) -> None:
    with run_ottla_broker(start=False) as broker:
        broker.command = lambda it: [*json_log_command(it), "--set", setting]
        broker.spawn()
        assert broker.process is not None and broker.process.wait(60) == 2
        line = read_lines(broker)[-1]
        assert line["level"] == "ERROR" and setting.partition("=")[0] in line["message"]
