"""`ottla top` on a real broker, with its output in a pipe and on a terminal."""

import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka as ck

from tests.brokers import BrokerProcess
from tests.clients.conftest import NewBroker
from tests.ottla_command import COMMAND, command_environment, run_ottla
from tests.waiting import eventually


@contextmanager
def produce_all_the_time(broker: BrokerProcess, topic: str) -> Iterator[None]:
    """Produces records until the end of the block."""
    stopped = threading.Event()

    def produce() -> None:
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        while not stopped.wait(0.01):
            producer.produce(topic, b"x" * 100)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def commit_first_offset(broker: BrokerProcess) -> None:
    """Commits an offset of the group `slow`, as if it had read one record of `busy`."""
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "slow"})
    consumer.commit(offsets=[ck.TopicPartition("busy", 0, 1)], asynchronous=False)
    consumer.close()


def run_top_once(broker: BrokerProcess, *arguments: str) -> str:
    done = run_ottla("top", *arguments, "--bootstrap", broker.bootstrap)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_top_prints_one_table_with_rates_where_there_is_no_terminal(new_broker: NewBroker) -> None:
    with new_broker() as broker, produce_all_the_time(broker, "busy"):
        eventually(lambda: "busy" in run_top_once(broker, "--interval", "0.2"), within_s=30)
        (busy,) = (it for it in json.loads(run_top_once(broker, "topics", "-o", "json")) if it["topic"] == "busy")
        assert busy["recordsPerSecond"] > 0 and busy["records"] > 0 and busy["problem"] == ""
        commit_first_offset(broker)
        (slow,) = (it for it in json.loads(run_top_once(broker, "groups", "-o", "json")) if it["group"] == "slow")
        assert slow["lag"] > 0
        heading, row = run_top_once(broker, "brokers", "--once").splitlines()
        assert heading.split()[:3] == ["BROKER", "ADDRESS", "STATE"]
        assert row.split()[:3] == ["1", broker.bootstrap, "controller"]


def test_keys_choose_what_top_shows_on_a_terminal(new_broker: NewBroker) -> None:
    with new_broker() as broker, produce_all_the_time(broker, "busy"):
        eventually(lambda: "busy" in run_top_once(broker, "--interval", "0.2"), within_s=30)
        commit_first_offset(broker)
        ours, theirs = pty.openpty()
        environment = command_environment() | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
        process = subprocess.Popen(
            [*COMMAND, "top", "--interval", "0.2", "--bootstrap", broker.bootstrap],
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        seen = bytearray()

        def read() -> None:
            try:
                while data := os.read(ours, 65536):
                    seen.extend(data)
            except OSError:  # the terminal is closed when the process has ended
                return

        def shows(text: str) -> bool:
            return text.encode() in seen

        reader = threading.Thread(target=read)
        reader.start()
        try:
            eventually(lambda: shows("RECORDS/S") and shows("busy") and shows("healthy"), within_s=30)
            os.write(ours, b"g")
            eventually(lambda: shows("CONSUMED/S") and shows("slow"), within_s=30)
            os.write(ours, b"\r")
            eventually(lambda: shows("group slow"), within_s=30)
            os.write(ours, b"q")
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            reader.join()
            os.close(ours)
        assert b"Traceback" not in seen


def test_an_unknown_view_is_refused() -> None:
    done = run_ottla("top", "disks")
    assert done.returncode == 2 and "allowed: brokers, topics, groups" in done.stderr
