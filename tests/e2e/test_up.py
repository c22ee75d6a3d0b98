"""`ottla up` with one broker: records, edits of the files, crashes and error messages."""

import copy
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.clients import librdkafka as rd
from tests.e2e.up_process import UpProcess, is_process_running, prepare_up
from tests.e2e.up_resources import (
    Json,
    consume_values,
    count_partitions,
    produce_values,
    resource,
    shouting_pipeline,
    topic,
)
from tests.waiting import eventually


def cluster(up: UpProcess, **spec: Any) -> Json:
    config = {"group.initial.rebalance.delay.ms": 0, **spec.pop("config", {})}
    return resource(
        "Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": up.port}], config=config, **spec
    )


def describe_retention(up: UpProcess) -> str | None:
    """Setting retention.ms of the topic `greetings`."""
    value: str | None = rd.describe_topic_configs(up.bootstrap, "greetings")["retention.ms"].value
    return value


def test_topic_of_a_file_takes_records_which_survive_a_restart(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=3, config={"retention.ms": 3_600_000}))
    up.start()
    up.wait_for_line("first broker ready after")
    up.wait_for_line("topic greetings created")
    assert count_partitions(up, "greetings") == 3
    assert describe_retention(up) == "3600000"
    produce_values(up, "greetings", "hello", "world")
    up.wait_for_line("first message after")
    assert consume_values(up, "greetings", 2) == ["hello", "world"]
    broker = up.broker_pid()
    assert up.stop() == 0
    up.wait_for_line("all processes stopped")
    assert not is_process_running(broker)
    assert not any("Traceback" in line for line in up.lines)

    up.start()
    up.wait_for_line("first broker ready after")
    assert consume_values(up, "greetings", 2) == ["hello", "world"]
    assert up.stop(signal.SIGTERM) == 0
    assert not any("topic greetings created" in line for line in up.lines)


def test_edits_are_applied_and_invalid_edits_are_reported(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=1))
    up.start()
    up.wait_for_line("topic greetings created")
    up.write_resources(cluster(up), topic(partitions=3, config={"retention.ms": 7}), topic("more"))
    up.wait_for_line("topic greetings increased to 3 partitions")
    up.wait_for_line("topic greetings: retention.ms=7")
    up.wait_for_line("topic more created")
    assert count_partitions(up, "greetings") == 3
    assert describe_retention(up) == "7"

    up.write_resources(cluster(up), topic(partitions=2), topic("more"))
    up.wait_for_line("spec.partitions: partitions cannot be decreased")
    up.write_resources(cluster(up), topic(partitions=3, partition=1))
    up.wait_for_line("resources/all.yaml:21: spec.partition: unknown field; did you mean 'partitions'?")
    up.write_resources(cluster(up), topic(partitions=3, config={}))
    up.wait_for_line("topic greetings: retention.ms reset to default")
    up.wait_for_line("the files are valid again")
    up.wait_for_line("topic more is no longer described; it stays with its records")
    up.write_resources(cluster(up), topic(partitions=3, config={"retention.ms": "soon"}))
    up.wait_for_line("resources/all.yaml:22: topic 'greetings': retention.ms cannot be 'soon'; allowed: ")
    assert count_partitions(up, "more") == 1
    assert up.stop() == 0


def test_topic_with_deletion_policy_delete_is_deleted_with_its_resource(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(deletionPolicy="Delete"), topic("other"))
    up.start()
    up.wait_for_line("topic other created")
    up.write_resources(cluster(up), topic("other"))
    up.wait_for_line("deleted with their Topics (deletionPolicy: Delete): greetings")
    assert count_partitions(up, "greetings") == 0


def test_broker_that_a_killed_up_left_running_is_adopted(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic())
    up.start()
    up.wait_for_line("topic greetings created")
    broker = up.broker_pid()
    up.running_process.kill()
    up.running_process.wait()
    produce_values(up, "greetings", "before the kill")
    up.start()
    up.wait_for_line(f"broker demo-1 was still running (pid {broker}): adopted")
    assert consume_values(up, "greetings", 1) == ["before the kill"]
    assert up.stop() == 0
    assert not is_process_running(broker)


def test_killed_broker_is_restarted(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic())
    up.start()
    up.wait_for_line("topic greetings created")
    produce_values(up, "greetings", "before")
    broker = up.broker_pid()
    os.kill(broker, signal.SIGKILL)
    up.wait_for_line("broker demo-1: ")
    up.wait_for_line("broker demo-1 is ready again")
    assert up.broker_pid() != broker
    produce_values(up, "greetings", "after")
    assert consume_values(up, "greetings", 2) == ["after", "before"]
    assert up.stop() == 0


def test_changed_setting_restarts_the_broker(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic())
    up.start()
    up.wait_for_line("topic greetings created")
    broker = up.broker_pid()
    up.write_resources(cluster(up, config={"num.partitions": 4}), topic(), topic("wide"))
    up.wait_for_line("restarting broker 1 (settings")
    up.wait_for_line("topic wide created")
    assert count_partitions(up, "wide") == 4
    assert up.broker_pid() != broker


def test_port_in_use_is_reported_once_and_the_broker_starts_when_it_is_free(up: UpProcess) -> None:
    up.write_resources(cluster(up))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", up.port))
        other.listen()
        up.start()
        line = up.wait_for_line(f"broker demo-1: port {up.port} is in use")
        assert "resources/all.yaml:7)" in line
    up.wait_for_line("broker demo-1 is ready again")
    assert sum("is in use" in line for line in up.lines) == 1
    assert up.stop() == 0


def test_broker_of_another_cluster_on_the_port_is_not_changed(up: UpProcess, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with prepare_up(tmp_path / "other") as other:
        other.port = up.port
        other.write_resources(cluster(other), topic("theirs"))
        other.start()
        other.wait_for_line("topic theirs created")
        up.write_resources(cluster(up), topic("ours"))
        up.start()
        up.wait_for_line(f"broker demo-1: port {up.port} is in use")
        assert other.stop() == 0
        up.wait_for_line("topic ours created")
        data = other.folder / ".ottla" / "demo" / "1" / "data"
        assert [path.name for path in data.glob("*-0") if path.name in ("ours-0", "theirs-0")] == ["theirs-0"]
        assert up.stop() == 0


def test_unknown_setting_is_reported_with_its_line(up: UpProcess) -> None:
    up.write_resources(cluster(up, config={"num.partitons": 3}))
    refused = up.run_ottla("up", "resources")
    assert refused.returncode == 2
    assert "resources/all.yaml:12: spec.config.num.partitons: num.partitons is no setting" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_second_up_in_a_folder_names_the_process_of_the_first(up: UpProcess) -> None:
    up.write_resources(cluster(up))
    up.start()
    up.wait_for_line("first broker ready after")
    second = up.run_ottla("up", "resources")
    assert second.returncode == 1
    assert second.stderr == (
        f"ottla: another `ottla up` (pid {up.running_process.pid}) is running in .ottla; "
        "stop it first, or use another --home\n"
    )


def test_without_java_brokers_run_and_pipelines_are_reported(up: UpProcess, tmp_path: Path) -> None:
    pipeline = resource(
        "Pipeline",
        "copy",
        clusterRef={"name": "demo"},
        sources={"greetings": {"topic": "greetings", "format": {"type": "raw"}}},
        sinks=[{"from": "greetings", "console": {}}],
    )
    up.write_resources(cluster(up), topic(), pipeline)
    up.start(PATH=str(tmp_path), JAVA_HOME="")
    line = up.wait_for_line("pipeline copy: the driver is not started")
    assert "Java 17" in line
    assert up.stop() == 0


LOAD = """
import json, sys, time
for number in range(1000):
    print(json.dumps({"topic": "greetings", "key": str(number % 7), "value": {"number": number}}), flush=True)
    if number == 600 and not sys.argv[1:] and __import__("os").environ.get("BREAK"):
        time.sleep(600)
"""


def test_interrupted_load_continues_with_the_next_record(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=3))
    (up.folder / "resources" / "load.py").write_text(LOAD)
    up.start(BREAK="1")
    up.wait_for_line("first message after")
    eventually(
        lambda: sum(1 for line in up.run_ottla("consume", "greetings", "-e").stdout.splitlines()) >= 600,
        message="600 records",
    )
    assert up.stop() == 0
    up.start()
    up.wait_for_line("records written")
    lines = up.run_ottla("consume", "greetings", "--exit").stdout.splitlines()
    assert sorted(lines) == sorted(f'{{"number": {number}}}' for number in range(1000))
    assert up.stop() == 0
    up.start()
    up.wait_for_line("first broker ready after")
    eventually(lambda: len(up.run_ottla("consume", "greetings", "--exit").stdout.splitlines()) == 1000)
    assert up.stop() == 0
    assert not any("records written" in line for line in up.lines)


@pytest.mark.slow
def test_interrupted_load_continues_although_partitions_were_added(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=2))
    (up.folder / "resources" / "load.py").write_text(LOAD)
    up.start(BREAK="1")
    eventually(
        lambda: len(up.run_ottla("consume", "greetings", "--exit").stdout.splitlines()) >= 600, message="600 records"
    )
    up.write_resources(cluster(up), topic(partitions=5))
    up.wait_for_line("topic greetings increased to 5 partitions")
    assert up.stop() == 0
    up.start()
    up.wait_for_line("records written")
    lines = up.run_ottla("consume", "greetings", "--exit").stdout.splitlines()
    assert sorted(lines) == sorted(f'{{"number": {number}}}' for number in range(1000))


LONG_LOAD = """
for number in range(50_000):
    print('{"topic": "greetings", "value": {"word": "hello"}}')
"""


@pytest.mark.slow
def test_load_gives_way_to_a_pipeline_that_starts(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=1), topic("shouts"), shouting_pipeline())
    (up.folder / "resources" / "load.py").write_text(LONG_LOAD)
    up.start()
    up.wait_for_line("load.py: 1,000 records/s after 10,000 of greetings")
    up.wait_for_line("50,000 records written", within_s=120)
    before = up.lines[: next(at for at, line in enumerate(up.lines) if "50,000 records written" in line)]
    assert any("first pipeline row after" in line for line in before)
    assert up.stop() == 0
    up.start()
    up.wait_for_line("first broker ready after")
    assert up.stop() == 0
    assert not any("records/s after" in line for line in up.lines), "the load was completed before"


def test_produce_cannot_resume_over_another_number_of_partitions_without_the_former_number(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=2))
    up.start()
    up.wait_for_line("topic greetings created")
    lines = [f"{number}=x\n" for number in range(100)]
    keyed = ("produce", "greetings", "--key-separator", "=", "--resume")
    assert up.run_ottla(*keyed, stdin="".join(lines[:50])).returncode == 0
    assert up.run_ottla("topics", "alter", "greetings", "-p", "3").returncode == 0
    result = up.run_ottla(*keyed, stdin="".join(lines))
    assert result.returncode == 1
    assert "cannot be resumed: greetings-" in result.stderr
    assert "set --partitions" in result.stderr
    assert up.run_ottla(*keyed, "--partitions", "4", stdin="".join(lines)).returncode == 2
    assert up.run_ottla(*keyed, "--partitions", "2", stdin="".join(lines)).returncode == 0
    lines = up.run_ottla("consume", "greetings", "--exit", "--keys").stdout.splitlines()
    assert sorted(lines) == sorted(f"{number}\tx" for number in range(100))


def test_ottla_commands_reach_the_brokers_of_up(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=2))
    up.start()
    up.wait_for_line("topic greetings created")
    written = up.run_ottla("produce", "greetings", "--key-separator", "=", stdin="a=1\nb=2\nc=3\n")
    assert (written.returncode, written.stdout) == (0, "")
    assert "3 records written" in written.stderr
    keys = up.run_ottla("consume", "greetings", "--exit", "--keys", "--group", "people").stdout.splitlines()
    assert sorted(keys) == ["a\t1", "b\t2", "c\t3"]
    assert up.run_ottla("consume", "greetings", "--exit", "--group", "people").stdout == ""
    assert "people" in up.run_ottla("groups", "list").stdout
    assert '"lag": 0' in up.run_ottla("groups", "describe", "people", "-o", "json").stdout
    assert up.run_ottla("groups", "reset-offsets", "people", "--to", "beginning").returncode == 0
    assert len(up.run_ottla("consume", "greetings", "--exit", "--group", "people").stdout.splitlines()) == 3
    assert up.run_ottla("groups", "delete", "people", "--yes").returncode == 0
    assert up.run_ottla("groups", "describe", "people").returncode == 3
    assert up.run_ottla("topics", "create", "made", "-p", "4", "-c", "cleanup.policy=compact").returncode == 0
    assert up.run_ottla("topics", "create", "made").returncode == 1
    assert up.run_ottla("topics", "alter", "made", "-p", "5", "--unset", "cleanup.policy").returncode == 0
    assert '"partitions"' in up.run_ottla("topics", "describe", "made", "-o", "json").stdout
    assert up.run_ottla("topics", "describe", "nothing").returncode == 3
    assert up.run_ottla("topics", "delete", "made", "--yes").returncode == 0
    assert up.run_ottla("cluster", "health").returncode == 0
    assert up.bootstrap.split(":")[1] in up.run_ottla("cluster", "describe").stdout


def test_pipeline_reads_one_topic_and_writes_another(up: UpProcess) -> None:
    pipeline = shouting_pipeline()
    wrong = copy.deepcopy(pipeline)
    wrong["spec"]["transforms"][0]["sql"] = "SELECT upper(wrd) AS word FROM greetings"
    up.write_resources(cluster(up), topic(), topic("shouts"), wrong)
    up.start()
    line = up.wait_for_line("there is no column `wrd` (line 1, pos 13); the nearest are `word`", within_s=150)
    number = next(
        n for n, it in enumerate((up.folder / "resources/all.yaml").read_text().splitlines(), 1) if "name: loud" in it
    )
    assert f"resources/all.yaml:{number}: pipeline shout: spec.transforms[0] (loud): " in line
    up.wait_for_line("topic shouts created")
    up.write_resources(cluster(up), topic(), topic("shouts"), pipeline)
    produce_values(up, "greetings", '{"word": "hello"}')
    up.wait_for_line("first pipeline row after", within_s=150)
    assert consume_values(up, "shouts", 1) == ['{"word":"HELLO"}']
    assert "ottla-pipeline-shout" in up.run_ottla("groups", "list").stdout
    assert up.stop() == 0
    up.wait_for_line("pipeline shout: 1 row in, 1 row out")


@pytest.mark.slow
def test_spark_starts_while_a_topic_of_the_pipeline_is_not_ready(up: UpProcess) -> None:
    process = up.folder / ".ottla" / "demo" / "pipelines" / "shout" / "process.json"
    up.write_resources(cluster(up), topic("shouts"), shouting_pipeline())
    up.start()
    up.wait_for_line("pipeline shout: no driver is started with this spec yet: topic greetings")
    started = process.read_text()
    up.write_resources(cluster(up), topic(), topic("shouts"), shouting_pipeline())
    up.wait_for_line("topic greetings created")
    produce_values(up, "greetings", '{"word": "hello"}')
    up.wait_for_line("first pipeline row after", within_s=150)
    assert consume_values(up, "shouts", 1) == ['{"word":"HELLO"}']
    assert process.read_text() == started, "another driver was started"
    assert up.stop() == 0
