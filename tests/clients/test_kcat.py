"""kcat, as used in a shell."""

import json
import subprocess

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import COMPRESSIONS, START_MS, Message


def run(kcat: str, broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    command = [kcat, "-b", broker.bootstrap, "-q", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_lines_are_read_as_produced(broker: BrokerProcess, name: str, kcat: str, compression: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    lines = "".join(f"key{i}:value {i} {'y' * 200}\n" for i in range(200))
    idempotent = "true" if compression == "zstd" else "false"
    options = ["-z", compression] if compression != "none" else []
    run(
        kcat,
        broker,
        "-P",
        "-t",
        name,
        "-p",
        "0",
        "-K:",
        "-H",
        "a=b",
        "-X",
        f"enable.idempotence={idempotent}",
        *options,
        stdin=lines,
    )
    assert run(kcat, broker, "-C", "-t", name, "-e", "-K:", "-o", "beginning") == lines
    one = json.loads(run(kcat, broker, "-C", "-t", name, "-e", "-J", "-o", "150", "-c", "1"))
    assert (one["offset"], one["key"], one["headers"]) == (150, "key150", ["a", "b"])


def test_null_values_are_kept_and_offsets_are_found_by_time_and_from_the_end(
    broker: BrokerProcess, name: str, kcat: str
) -> None:
    rd.create_topic(broker.bootstrap, name)
    run(kcat, broker, "-P", "-t", name, "-p", "0", "-K:", "-Z", stdin="k:\n")
    (message,) = rd.consume(broker.bootstrap, name)
    assert (message.key(), message.value()) == (b"k", None)
    client = rd.admin_client(broker.bootstrap)
    for emptied in client.delete_records([ck.TopicPartition(name, 0, ck.OFFSET_END)]).values():
        emptied.result(30)
    rd.produce(broker.bootstrap, name, [Message(b"%d" % i, b"v%d" % i, START_MS + i * 1000) for i in range(20)])
    from_time = run(kcat, broker, "-C", "-t", name, "-e", "-o", f"s@{START_MS + 15_000}", "-f", "%k %T\\n").splitlines()
    assert from_time[0] == f"15 {START_MS + 15_000}"
    assert run(kcat, broker, "-C", "-t", name, "-e", "-o", "-3", "-f", "%s ").split() == ["v17", "v18", "v19"]
    assert run(kcat, broker, "-Q", "-t", f"{name}:0:{START_MS + 4_500}").split() == [name, "[0]", "offset", "6"]


def test_metadata_are_listed_and_a_group_resumes_at_its_commit(broker: BrokerProcess, name: str, kcat: str) -> None:
    rd.create_topic(broker.bootstrap, name, 3)
    listed = json.loads(run(kcat, broker, "-L", "-J"))
    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap]
    (topic,) = [topic for topic in listed["topics"] if topic["topic"] == name]
    assert sorted(partition["partition"] for partition in topic["partitions"]) == [0, 1, 2]
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 5))
    options = ["-X", "auto.offset.reset=earliest", "-c", "5"]
    assert len(run(kcat, broker, "-G", name, *options, name).splitlines()) == 5
    rd.produce(broker.bootstrap, name, rd.numbered_messages(5, 10))
    assert run(kcat, broker, "-G", name, *options, name).splitlines()[0] == "value 5", "the group resumes at its commit"
