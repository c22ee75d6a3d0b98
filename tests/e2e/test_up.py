"""`ottla up`, as a person meets it: from YAML to records, edits, crashes, and what it says when something is in the way."""

import copy
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.e2e.up_process import UpProcess, is_process_running, up_process
from tests.waiting import eventually

Json = dict[str, Any]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[UpProcess]:
    with up_process(tmp_path) as made:
        yield made


def resource(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": "ottla.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def cluster(home: UpProcess, **spec: Any) -> Json:
    config = {"group.initial.rebalance.delay.ms": 0, **spec.pop("config", {})}
    return resource(
        "Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": home.port}], config=config, **spec
    )


def topic(name: str = "greetings", **spec: Any) -> Json:
    return resource("Topic", name, clusterRef={"name": "demo"}, **spec)


def admin(home: UpProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": home.bootstrap})


def count_partitions(home: UpProcess, name: str) -> int:
    found = admin(home).list_topics(timeout=10).topics
    return len(found[name].partitions) if name in found else 0


def describe_setting(home: UpProcess, name: str, key: str) -> str | None:
    wanted = ConfigResource(ResourceType.TOPIC, name)
    client = admin(home)  # lives until it has answered
    value: str | None = client.describe_configs([wanted])[wanted].result(10)[key].value
    return value


def produce_values(home: UpProcess, name: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": home.bootstrap})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(30) == 0


def consume_values(home: UpProcess, name: str, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": home.bootstrap, "group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    found: list[str] = []
    try:
        while len(found) < count:
            for message in consumer.consume(count, timeout=30):
                assert message.error() is None
                found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return sorted(found)


def test_from_yaml_to_records_and_back_again(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=3, config={"retention.ms": 3_600_000}))
    home.start()
    home.wait_for_line("first broker ready after")
    home.wait_for_line("topic greetings created")
    assert count_partitions(home, "greetings") == 3
    assert describe_setting(home, "greetings", "retention.ms") == "3600000"
    produce_values(home, "greetings", "hello", "world")
    home.wait_for_line("first message after")
    assert consume_values(home, "greetings", 2) == ["hello", "world"]
    broker = home.broker_pid()
    assert home.stop() == 0
    home.wait_for_line("all processes stopped")
    assert not is_process_running(broker)
    assert not any("Traceback" in line for line in home.lines)

    home.start()
    home.wait_for_line("first broker ready after")
    assert consume_values(home, "greetings", 2) == ["hello", "world"]
    assert home.stop(signal.SIGTERM) == 0
    assert not any("topic greetings created" in line for line in home.lines)


def test_edits_are_followed_and_bad_ones_told(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=1))
    home.start()
    home.wait_for_line("topic greetings created")
    home.write_resources(cluster(home), topic(partitions=3, config={"retention.ms": 7}), topic("more"))
    home.wait_for_line("topic greetings increased to 3 partitions")
    home.wait_for_line("topic greetings: retention.ms=7")
    home.wait_for_line("topic more created")
    assert count_partitions(home, "greetings") == 3
    assert describe_setting(home, "greetings", "retention.ms") == "7"

    home.write_resources(cluster(home), topic(partitions=2), topic("more"))
    home.wait_for_line("spec.partitions: partitions cannot be decreased")
    home.write_resources(cluster(home), topic(partitions=3, partition=1))
    home.wait_for_line("resources/all.yaml:21: spec.partition: unknown field; did you mean 'partitions'?")
    home.write_resources(cluster(home), topic(partitions=3, config={}))
    home.wait_for_line("topic greetings: retention.ms reset to default")
    home.wait_for_line("the files are valid again")
    home.wait_for_line("topic more is no longer described; it stays with its records")
    home.write_resources(cluster(home), topic(partitions=3, config={"retention.ms": "soon"}))
    home.wait_for_line("resources/all.yaml:22: topic 'greetings': retention.ms cannot be 'soon'; allowed: ")
    assert count_partitions(home, "more") == 1
    assert home.stop() == 0


def test_topics_that_are_to_go_go(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(deletionPolicy="Delete"), topic("other"))
    home.start()
    home.wait_for_line("topic other created")
    home.write_resources(cluster(home), topic("other"))
    home.wait_for_line("deleted with their Topics (deletionPolicy: Delete): greetings")
    assert count_partitions(home, "greetings") == 0


def test_what_a_crashed_up_left_running_is_taken_over(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic())
    home.start()
    home.wait_for_line("topic greetings created")
    broker = home.broker_pid()
    home.running_process.kill()
    home.running_process.wait()
    produce_values(home, "greetings", "still there")
    home.start()
    home.wait_for_line(f"broker demo-1 was still running (pid {broker}): adopted")
    assert consume_values(home, "greetings", 1) == ["still there"]
    assert home.stop() == 0
    assert not is_process_running(broker)


def test_a_broker_that_dies_is_started_again(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic())
    home.start()
    home.wait_for_line("topic greetings created")
    produce_values(home, "greetings", "before")
    broker = home.broker_pid()
    os.kill(broker, signal.SIGKILL)
    home.wait_for_line("broker demo-1: ")
    home.wait_for_line("broker demo-1 is ready again")
    assert home.broker_pid() != broker
    produce_values(home, "greetings", "after")
    assert consume_values(home, "greetings", 2) == ["after", "before"]
    assert home.stop() == 0


def test_a_changed_setting_restarts_the_broker(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic())
    home.start()
    home.wait_for_line("topic greetings created")
    broker = home.broker_pid()
    home.write_resources(cluster(home, config={"num.partitions": 4}), topic(), topic("wide"))
    home.wait_for_line("restarting broker 1 (settings")
    home.wait_for_line("topic wide created")
    assert count_partitions(home, "wide") == 4
    assert home.broker_pid() != broker


def test_a_port_in_use_is_one_line_and_healed_by_itself(home: UpProcess) -> None:
    home.write_resources(cluster(home))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", home.port))
        taken.listen()
        home.start()
        said = home.wait_for_line(f"broker demo-1: port {home.port} is in use")
        assert "resources/all.yaml:7)" in said
    home.wait_for_line("broker demo-1 is ready again")
    assert sum("is in use" in line for line in home.lines) == 1
    assert home.stop() == 0


def test_another_clusters_broker_on_the_port_is_left_alone(home: UpProcess, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with up_process(tmp_path / "other") as other:
        other.port = home.port
        other.write_resources(cluster(other), topic("theirs"))
        other.start()
        other.wait_for_line("topic theirs created")
        home.write_resources(cluster(home), topic("ours"))
        home.start()
        home.wait_for_line(f"broker demo-1: port {home.port} is in use")
        assert other.stop() == 0
        home.wait_for_line("topic ours created")
        data = other.folder / ".ottla" / "demo" / "1" / "data"
        assert [path.name for path in data.glob("*-0") if path.name in ("ours-0", "theirs-0")] == ["theirs-0"]
        assert home.stop() == 0


def test_a_bad_setting_is_named_with_its_line(home: UpProcess) -> None:
    home.write_resources(cluster(home, config={"num.partitons": 3}))
    home.start()
    said = home.wait_for_line("num.partitons")
    assert "resources/all.yaml:12)" in said
    assert home.stop() == 0
    assert not any("Traceback" in line for line in home.lines)


def test_a_second_up_says_who_is_there(home: UpProcess) -> None:
    home.write_resources(cluster(home))
    home.start()
    home.wait_for_line("first broker ready after")
    second = home.run_ottla("up", "resources")
    assert second.returncode == 1
    assert second.stderr == (
        f"ottla: another `ottla up` (pid {home.running_process.pid}) is running in .ottla; stop it first, or use another --home\n"
    )


def test_without_java_everything_but_pipelines_runs(home: UpProcess, tmp_path: Path) -> None:
    pipeline = resource(
        "Pipeline",
        "copy",
        clusterRef={"name": "demo"},
        sources={"greetings": {"topic": "greetings", "format": {"type": "raw"}}},
        sinks=[{"from": "greetings", "console": {}}],
    )
    home.write_resources(cluster(home), topic(), pipeline)
    home.start(PATH=str(tmp_path), JAVA_HOME="")
    said = home.wait_for_line("pipeline copy: the driver is not started")
    assert "Java 17" in said
    assert home.stop() == 0


LOAD = """
import json, sys, time
for number in range(1000):
    print(json.dumps({"topic": "greetings", "key": str(number % 7), "value": {"number": number}}), flush=True)
    if number == 600 and not sys.argv[1:] and __import__("os").environ.get("BREAK"):
        time.sleep(600)
"""


def test_a_load_that_is_broken_off_goes_on_exactly(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=3))
    (home.folder / "resources" / "load.py").write_text(LOAD)
    home.start(BREAK="1")
    home.wait_for_line("first message after")
    eventually(
        lambda: sum(1 for line in home.run_ottla("consume", "greetings", "-e").stdout.splitlines()) >= 600,
        message="600 records",
    )
    assert home.stop() == 0
    home.start()
    home.wait_for_line("records written")
    found = home.run_ottla("consume", "greetings", "--exit").stdout.splitlines()
    assert sorted(found) == sorted(f'{{"number": {number}}}' for number in range(1000))
    assert home.stop() == 0
    home.start()
    home.wait_for_line("first broker ready after")
    eventually(lambda: len(home.run_ottla("consume", "greetings", "--exit").stdout.splitlines()) == 1000)
    assert home.stop() == 0
    assert not any("records written" in line for line in home.lines)


def test_a_load_goes_on_exactly_although_partitions_were_added_meanwhile(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=2))
    (home.folder / "resources" / "load.py").write_text(LOAD)
    home.start(BREAK="1")
    eventually(
        lambda: len(home.run_ottla("consume", "greetings", "--exit").stdout.splitlines()) >= 600, message="600 records"
    )
    home.write_resources(cluster(home), topic(partitions=5))
    home.wait_for_line("topic greetings increased to 5 partitions")
    assert home.stop() == 0
    home.start()
    home.wait_for_line("records written")
    found = home.run_ottla("consume", "greetings", "--exit").stdout.splitlines()
    assert sorted(found) == sorted(f'{{"number": {number}}}' for number in range(1000))


def test_a_run_that_nobody_has_noted_is_not_resumed_over_other_partitions(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=2))
    home.start()
    home.wait_for_line("topic greetings created")
    lines = [f"{number}=x\n" for number in range(100)]
    keyed = ("produce", "greetings", "--key-separator", "=", "--resume")
    assert home.run_ottla(*keyed, stdin="".join(lines[:50])).returncode == 0
    assert home.run_ottla("topics", "alter", "greetings", "-p", "3").returncode == 0
    refused = home.run_ottla(*keyed, stdin="".join(lines))
    assert refused.returncode == 1
    assert "cannot be resumed: greetings-" in refused.stderr
    assert "set --partitions" in refused.stderr
    assert home.run_ottla(*keyed, "--partitions", "4", stdin="".join(lines)).returncode == 2
    assert home.run_ottla(*keyed, "--partitions", "2", stdin="".join(lines)).returncode == 0
    found = home.run_ottla("consume", "greetings", "--exit", "--keys").stdout.splitlines()
    assert sorted(found) == sorted(f"{number}\tx" for number in range(100))


def test_the_command_against_its_brokers(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=2))
    home.start()
    home.wait_for_line("topic greetings created")
    written = home.run_ottla("produce", "greetings", "--key-separator", "=", stdin="a=1\nb=2\nc=3\n")
    assert (written.returncode, written.stdout) == (0, "")
    assert "3 records written" in written.stderr
    keys = home.run_ottla("consume", "greetings", "--exit", "--keys", "--group", "people").stdout.splitlines()
    assert sorted(keys) == ["a\t1", "b\t2", "c\t3"]
    assert home.run_ottla("consume", "greetings", "--exit", "--group", "people").stdout == ""
    assert "people" in home.run_ottla("groups", "list").stdout
    assert '"lag": 0' in home.run_ottla("groups", "describe", "people", "-o", "json").stdout
    assert home.run_ottla("groups", "reset-offsets", "people", "--to", "beginning").returncode == 0
    assert len(home.run_ottla("consume", "greetings", "--exit", "--group", "people").stdout.splitlines()) == 3
    assert home.run_ottla("groups", "delete", "people", "--yes").returncode == 0
    assert home.run_ottla("groups", "describe", "people").returncode == 3
    assert home.run_ottla("topics", "create", "made", "-p", "4", "-c", "cleanup.policy=compact").returncode == 0
    assert home.run_ottla("topics", "create", "made").returncode == 1
    assert home.run_ottla("topics", "alter", "made", "-p", "5", "--unset", "cleanup.policy").returncode == 0
    assert '"partitions"' in home.run_ottla("topics", "describe", "made", "-o", "json").stdout
    assert home.run_ottla("topics", "describe", "nothing").returncode == 3
    assert home.run_ottla("topics", "delete", "made", "--yes").returncode == 0
    assert home.run_ottla("cluster", "health").returncode == 0
    assert home.bootstrap.split(":")[1] in home.run_ottla("cluster", "describe").stdout


def test_a_pipeline_from_its_topic_to_another(home: UpProcess) -> None:
    pipeline = resource(
        "Pipeline",
        "shout",
        clusterRef={"name": "demo"},
        sources={"greetings": {"topic": "greetings", "format": {"type": "json", "schema": "word STRING"}}},
        transforms=[{"name": "loud", "sql": "SELECT upper(word) AS word FROM greetings"}],
        sinks=[{"from": "loud", "topic": "shouts"}],
        trigger={"interval": "200ms"},
        spark={"conf": {"spark.sql.shuffle.partitions": "1"}},
    )
    wrong = copy.deepcopy(pipeline)
    wrong["spec"]["transforms"][0]["sql"] = "SELECT upper(wrd) AS word FROM greetings"
    home.write_resources(cluster(home), topic(), topic("shouts"), wrong)
    home.start()
    said = home.wait_for_line("there is no column `wrd` (line 1, pos 13); the nearest are `word`", within_s=150)
    line = next(
        n for n, it in enumerate((home.folder / "resources/all.yaml").read_text().splitlines(), 1) if "name: loud" in it
    )
    assert f"resources/all.yaml:{line}: pipeline shout: spec.transforms[0] (loud): " in said
    home.wait_for_line("topic shouts created")
    home.write_resources(cluster(home), topic(), topic("shouts"), pipeline)
    produce_values(home, "greetings", '{"word": "hello"}')
    home.wait_for_line("first pipeline row after", within_s=150)
    assert consume_values(home, "shouts", 1) == ['{"word":"HELLO"}']
    assert "ottla-pipeline-shout" in home.run_ottla("groups", "list").stdout
    assert home.stop() == 0
    home.wait_for_line("pipeline shout: 1 row in, 1 row out")
