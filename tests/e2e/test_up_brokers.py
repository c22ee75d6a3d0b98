"""`ottla up` with several brokers: they come, fall, are restarted one after the other, become more, become fewer; nothing is lost meanwhile."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.clusters import is_in_sync
from tests.e2e.test_up import Json, consume_values, count_partitions, produce_values, resource, topic
from tests.e2e.up_process import UpProcess, is_process_running, up_process
from tests.waiting import eventually


@pytest.fixture
def home(tmp_path: Path) -> Iterator[UpProcess]:
    with up_process(tmp_path) as made:
        made.brokers = 3
        yield made


def cluster(home: UpProcess, replicas: int = 3, **spec: Any) -> Json:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 6, **spec.pop("config", {})}
    return resource(
        "Cluster", "demo", replicas=replicas, listeners=[{"name": "plain", "port": home.port}], config=config, **spec
    )


def run_json(home: UpProcess, *what: str) -> Json:
    done = home.run_ottla(*what, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def wait_until_in_sync(home: UpProcess, name: str, replicas: int, *, preferred: bool = True) -> list[Json]:
    """The topic's partitions, once each has so many replicas, all in sync and, if that is asked, led by the first."""

    def settled() -> list[Json]:
        found: list[Json] = run_json(home, "topics", "describe", name)["partitions"]
        good = all(
            len(it["replicas"]) == len(it["isr"]) == replicas and (not preferred or it["leader"] == it["replicas"][0])
            for it in found
        )
        return found if good else []

    # A command is a process: it is asked when a look without one says that it is worth it.
    eventually(lambda: is_in_sync(home.bootstrap, name, replicas, preferred=preferred), within_s=60)
    return eventually(settled, within_s=60, message=f"{name} with {replicas} replicas in sync")


def count_led(parts: list[Json]) -> dict[int, int]:
    found: dict[int, int] = {}
    for it in parts:
        found[it["leader"]] = found.get(it["leader"], 0) + 1
    return found


@contextmanager
def produce_continuously(home: UpProcess, name: str, settings: Mapping[str, str] | None = None) -> Iterator[list[str]]:
    """A producer that writes all the time, acks from all; gives what was acknowledged. Ends when everything is. `settings`: over its own."""
    acknowledged: list[str] = []
    over = threading.Event()
    failures: list[str] = []

    def told(error: object, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            acknowledged.append(message.value().decode())

    def run() -> None:
        own = {"bootstrap.servers": home.bootstrap, "enable.idempotence": True, "linger.ms": 2}
        producer = Producer(own | dict(settings or {}))
        number = 0
        while not over.is_set():
            producer.produce(name, str(number), on_delivery=told)
            number += 1
            producer.poll(0)
            time.sleep(0.002)
        assert producer.flush(60) == 0

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        eventually(lambda: acknowledged, message="a first acknowledgement")
        yield acknowledged
    finally:
        over.set()
        thread.join(90)
    assert not thread.is_alive()
    assert failures == []
    assert len(set(acknowledged)) == len(acknowledged)


def test_three_brokers_one_of_which_is_killed(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=6))
    home.start()
    home.wait_for_line("3 brokers ready after")
    home.wait_for_line("topic greetings created")
    assert set(count_led(wait_until_in_sync(home, "greetings", 3)).values()) == {2}
    with produce_continuously(home, "greetings") as acknowledged:
        before = len(acknowledged)
        killed = home.broker_pid(2)
        os.kill(killed, signal.SIGKILL)
        home.wait_for_line("broker demo-2: ")
        home.wait_for_line("broker demo-2 is ready again")
        wait_until_in_sync(home, "greetings", 3, preferred=False)
        eventually(lambda: len(acknowledged) > before + 500, within_s=30)
    assert home.broker_pid(2) != killed
    assert consume_values(home, "greetings", len(acknowledged)) == sorted(acknowledged)
    pids = [home.broker_pid(it) for it in (1, 2, 3)]
    began = time.monotonic()
    assert home.stop() == 0
    assert time.monotonic() - began < 10
    assert not any(map(is_process_running, pids))

    home.start()
    home.wait_for_line("3 brokers ready after")
    assert consume_values(home, "greetings", len(acknowledged)) == sorted(acknowledged)
    assert home.stop() == 0
    assert not any("Traceback" in line for line in home.lines)


def test_a_changed_setting_restarts_one_broker_after_the_other(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic(partitions=6))
    home.start()
    home.wait_for_line("topic greetings created")
    wait_until_in_sync(home, "greetings", 3)
    before = {it: home.broker_pid(it) for it in (1, 2, 3)}
    with produce_continuously(home, "greetings") as acknowledged:
        home.write_resources(cluster(home, config={"num.partitions": 4}), topic(partitions=6), topic("wide"))
        for id_ in (1, 2, 3):
            home.wait_for_line(f"restarting broker {id_} (settings num.partitions")
        home.wait_for_line("topic wide created")
        wait_until_in_sync(home, "greetings", 3)
    assert count_partitions(home, "wide") == 4
    assert all(home.broker_pid(it) != pid for it, pid in before.items())
    controller = run_json(home, "cluster", "describe")["controller"]
    assert controller in (1, 2, 3)
    assert consume_values(home, "greetings", len(acknowledged)) == sorted(acknowledged)
    assert home.stop() == 0


def test_a_setting_that_running_brokers_take_restarts_nobody(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic())
    home.start()
    home.wait_for_line("topic greetings created")
    pids = [home.broker_pid(it) for it in (1, 2, 3)]
    home.write_resources(cluster(home, config={"log.retention.ms": 7_200_000}), topic())
    home.wait_for_line("log.retention.ms=7200000, without a restart")
    settings = {
        it["name"]: it["value"]
        for it in json.loads(home.run_ottla("topics", "describe", "greetings", "--all", "-o", "json").stdout)[
            "settings"
        ]
    }
    assert settings["retention.ms"] == "7200000"
    home.write_resources(cluster(home, config={"log.retention.ms": "soon"}), topic())
    assert "log.retention.ms" in home.wait_for_line("resources/all.yaml:13")
    assert [home.broker_pid(it) for it in (1, 2, 3)] == pids
    assert home.stop() == 0


def test_a_setting_that_no_broker_takes_stops_the_roll_at_the_first(home: UpProcess) -> None:
    home.write_resources(cluster(home), topic())
    home.start()
    home.wait_for_line("topic greetings created")
    wait_until_in_sync(home, "greetings", 3)
    home.write_resources(cluster(home, config={"num.partitions": "${env:MISSING}"}), topic())
    home.wait_for_line("num.partitions")
    home.wait_for_line("not ready after 30 s; no other broker is restarted", within_s=60)
    assert sum("restarting broker" in line for line in home.lines) == 1
    produce_values(home, "greetings", "still", "here")
    home.write_resources(cluster(home, config={"num.partitions": 2}), topic())
    for id_ in (1, 2, 3):
        eventually(
            lambda id_=id_: (
                json.loads((home.folder / f".ottla/demo/{id_}/settings.json").read_text()).get("num.partitions") == "2"
            ),  # type: ignore[misc]
            within_s=60,
        )
    wait_until_in_sync(home, "greetings", 3)
    assert consume_values(home, "greetings", 2) == ["here", "still"]
    assert home.stop() == 0


RESTART_MESSAGE, NO_RESTART_MESSAGE = "restarting broker", ", without a restart"


def replication_factors(home: UpProcess) -> list[str]:
    """The default.replication.factor that the first two brokers were started with."""
    files = [home.folder / f".ottla/demo/{id_}/settings.json" for id_ in (1, 2)]
    return [json.loads(it.read_text())["default.replication.factor"] for it in files]


def test_more_brokers_and_fewer(home: UpProcess) -> None:
    home.write_resources(cluster(home, 1), topic(partitions=6))
    home.start()
    home.wait_for_line("topic greetings created")
    produce_values(home, "greetings", *map(str, range(500)))
    assert len(consume_values(home, "greetings", 500)) == 500  # a group: the brokers' own topic is there
    home.write_resources(cluster(home, 3), topic(partitions=6))
    home.wait_for_line("6 partitions to move, internal topics for 3 brokers", within_s=60)
    home.wait_for_line("moved, spread over broker 1, 2, 3", within_s=60)
    assert count_led(wait_until_in_sync(home, "greetings", 1)) == {1: 2, 2: 2, 3: 2}
    wait_until_in_sync(home, "__consumer_offsets", 3)

    home.write_resources(cluster(home, 3), topic(partitions=6, replicas=3))
    home.wait_for_line("topic greetings: reassigning to 3 replicas")
    wait_until_in_sync(home, "greetings", 3)
    assert len(consume_values(home, "greetings", 500)) == 500

    home.write_resources(cluster(home, 2), topic(partitions=6, replicas=3))
    home.wait_for_line("3 replicas need as many brokers; Cluster demo has 2, in resources/all.yaml:6")
    home.write_resources(cluster(home, 2), topic(partitions=6, replicas=2))
    home.wait_for_line("stopping broker 3, which holds no replicas", within_s=60)
    assert set(count_led(wait_until_in_sync(home, "greetings", 2)).values()) == {3}
    wait_until_in_sync(home, "__consumer_offsets", 2)
    assert [it["id"] for it in run_json(home, "cluster", "describe")["brokers"]] == [1, 2]
    assert len(consume_values(home, "greetings", 500)) == 500

    # The brokers are restarted in these moments, and a request that one of them took with it is not repeated by itself.
    made = ("topics", "create", "of-clients", "-r", "2", "--if-not-exists")
    eventually(lambda: home.run_ottla(*made).returncode == 0, message="a topic of two replicas")
    eventually(
        lambda: set(replication_factors(home)) == {"2"}, within_s=60, message=lambda: str(replication_factors(home))
    )
    wait_until_in_sync(home, "__consumer_offsets", 2)  # the second to be restarted is back
    gone = next(at for at, it in enumerate(home.lines) if "stopping broker 3, which holds no replicas" in it)
    assert sum(RESTART_MESSAGE in it for it in home.lines[gone:]) == 2, (
        f"one roll, when the third was gone: {home.lines}"
    )
    changed = [it for it in home.lines if RESTART_MESSAGE in it or NO_RESTART_MESSAGE in it]
    home.write_resources(cluster(home, 1), topic(partitions=6))
    home.wait_for_line("the brokers stay as they are: ")
    assert [it for it in home.lines if RESTART_MESSAGE in it or NO_RESTART_MESSAGE in it] == changed, (
        "it is refused first"
    )
    assert set(replication_factors(home)) == {"2"}
    assert home.run_ottla("topics", "reassign", "of-clients", "-r", "1", "--watch").returncode == 0
    assert home.run_ottla("topics", "reassign", "greetings", "-r", "1", "--watch").returncode == 0
    home.wait_for_line("stopping broker 2, which holds no replicas", within_s=60)
    assert len(consume_values(home, "greetings", 500)) == 500
    assert home.stop() == 0


def test_taking_brokers_away_goes_on_after_a_stop(home: UpProcess) -> None:
    home.write_resources(cluster(home, 3), topic(partitions=6, replicas=2))
    home.start()
    home.wait_for_line("topic greetings created")
    produce_values(home, "greetings", *map(str, range(100)))
    assert home.stop() == 0
    home.write_resources(cluster(home, 2), topic(partitions=6, replicas=2))
    home.start()
    home.wait_for_line("stopping broker 3, which holds no replicas", within_s=60)
    wait_until_in_sync(home, "greetings", 2)
    assert len(consume_values(home, "greetings", 100)) == 100
    assert home.stop() == 0
