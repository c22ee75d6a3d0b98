"""`ottla broker --workers 2`: one command, two brokers, one cluster."""

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.brokers import TEST_SETTINGS, BrokerProcess, ottla_command
from tests.clients import librdkafka as rd
from tests.e2e.up_process import is_process_running
from tests.ports import first_of_free_ports
from tests.waiting import eventually

PARTITIONS = 6


def workers_command(broker: BrokerProcess) -> list[str]:
    return [*ottla_command(broker), "--workers", "2"]


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[BrokerProcess]:
    first = first_of_free_ports(5)
    settings = TEST_SETTINGS | {"http.listener": f"127.0.0.1:{first + 2}"}
    log_dir = tmp_path / "data"
    command = BrokerProcess("ottla", first, log_dir, tmp_path, settings, workers_command, "2 workers ready on ")
    command.start()
    try:
        yield command
    finally:
        command.kill()


def pids(command: BrokerProcess) -> dict[int, int]:
    """node.id → process id of each worker."""
    found = {}
    for child in Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split():
        arguments = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        found[next(int(it[8:]) for it in arguments if it.startswith("node.id="))] = int(child)
    return found


def get(command: BrokerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://{command.settings['http.listener']}{path}", timeout=20) as response:
        text: str = response.read().decode()
        return text


def test_a_worker_that_dies_comes_back_with_every_acknowledged_record(workers: BrokerProcess) -> None:
    bootstrap = f"127.0.0.1:{workers.port},127.0.0.1:{workers.port + 1}"
    rd.create_topic(bootstrap, "t", PARTITIONS)
    leaders = rd.admin_client(bootstrap).list_topics("t", timeout=20).topics["t"].partitions
    assert {it.leader for it in leaders.values()} == {1, 2}
    assert get(workers, "/readyz") == "ok\n"
    producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 1})
    errors: list[ck.KafkaError] = []

    def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            errors.append(error)

    def send(start: int, stop: int) -> None:
        for number in range(start, stop):
            producer.produce(
                "t",
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=delivered,
            )

    send(0, 3000)
    producer.flush(30)
    before = pids(workers)
    assert sorted(before) == [1, 2]
    os.kill(before[2], signal.SIGKILL)
    send(3000, 6000)
    assert producer.flush(60) == 0
    assert not errors
    assert pids(workers)[1] == before[1]
    assert pids(workers)[2] != before[2]
    for partition in range(PARTITIONS):
        values = rd.values_of(rd.consume(bootstrap, "t", partition=partition))
        assert values == [b"%d" % number for number in range(partition, 6000, PARTITIONS)]
    eventually(lambda: 'ottla_worker_ready{worker="2"} 1\n' in get(workers, "/metrics"))
    metrics = get(workers, "/metrics")
    assert 'ottla_worker_restarts_total{worker="2"} 1\n' in metrics
    assert metrics.count("# TYPE process_cpu_seconds_total") == 1
    assert all(f'process_cpu_seconds_total{{worker="{worker}"}}' in metrics for worker in (1, 2))
    assert "restarting broker 2 in 1 s (killed by SIGKILL)" in workers.log_tail()

    after = pids(workers)
    assert workers.stop() == 0
    assert not any(is_process_running(pid) for pid in after.values())
    log = workers.log_tail()
    assert "fenced broker 2: controlled shutdown" in log

    fewer = [*ottla_command(workers), "--workers", "1"]
    refused = subprocess.run(fewer, capture_output=True, text=True, timeout=60, cwd=workers.folder, check=False)
    assert refused.returncode == 2
    assert "no worker would use" in refused.stderr


def test_workers_end_with_a_command_that_is_killed_and_start_again(workers: BrokerProcess) -> None:
    before = pids(workers)
    workers.kill()
    eventually(lambda: not any(is_process_running(pid) for pid in before.values()))
    identity = workers.log_dir / "worker.2" / "meta.properties"
    identity.write_text(identity.read_text().replace("node.id=2", "node.id=7"))
    with pytest.raises(RuntimeError, match="exited with code 2"):
        workers.start()
    assert "node.id" in workers.log_tail()
    assert "broker 2 cannot start" in workers.log_tail()
    identity.write_text(identity.read_text().replace("node.id=7", "node.id=2"))
    workers.start()
    assert sorted(pids(workers)) == [1, 2]
