"""`ottla cluster metadata` with a real broker: the metadata log, and the snapshot of what the log
no longer has.
"""

import json
from typing import Any

import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.ottla_command import run_ottla
from tests.waiting import eventually


def metadata(broker: BrokerProcess, *arguments: str) -> str:
    done = run_ottla("cluster", "metadata", "-b", broker.bootstrap, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def describe_records(broker: BrokerProcess, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(metadata(broker, *arguments, "-o", "json"))
    return found


def topics(found: dict[str, Any]) -> list[str]:
    return [it["value"]["name"] for it in found["records"] if it["type"] == "topic"]


@pytest.fixture(autouse=True)
def _only_ottla(broker_kind: str) -> None:
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka's brokers do not serve their metadata log to clients")


def test_the_newest_records_are_shown(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    found = describe_records(broker, "--last", "3")
    assert [it["type"] for it in found["records"]] == ["topic", "partition", "partition"]
    assert [it["offset"] for it in found["records"]] == list(range(found["highWatermark"] - 3, found["highWatermark"]))
    assert (found["leader"], found["brokers"]) == (1, [{"id": 1, "voter": True, "end": found["highWatermark"]}])
    assert topics(describe_records(broker, "--type", "topic", "--last", "1")) == [name]
    assert topics(describe_records(broker, "--from", str(found["highWatermark"] - 1))) == []
    last_line = metadata(broker).splitlines()[-1]
    assert last_line.split()[1:6:4] == [str(found["epoch"]), f"topic={name}"], last_line


def test_records_deleted_from_the_log_are_read_from_the_snapshot(new_broker: NewBroker) -> None:
    with new_broker(metadata_log_max_snapshot_interval_ms=1) as broker:
        names = ["first"]
        rd.create_topic(broker.bootstrap, names[0], 1)

        def create_topic_unless_log_is_shortened() -> bool:
            if describe_records(broker)["start"] > 0:
                return True
            names.append(f"another-{len(names)}")  # a snapshot needs new records
            rd.create_topic(broker.bootstrap, names[-1], 1)
            return False

        eventually(create_topic_unless_log_is_shortened, within_s=30)
        found = describe_records(broker, "--from", "0")
        assert names[0] not in topics(found)
        assert all(it["offset"] >= found["start"] for it in found["records"])
        whole = describe_records(broker, "--snapshot")
        assert sorted(topics(whole)) == sorted(names)
        assert any(it["offset"] is None for it in whole["records"] if it["type"] == "topic")
