"""Apache Kafka's own test programs and tools judge a cluster: what they were told while brokers were killed, paused and
restarted, whether replicas are equal, and whether they can move and elect.
"""

import json
import time
from pathlib import Path

import pytest

from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster
from tests.e2e.java_tools import JavaToolProcess, run_java_tool, start_java_tool
from tests.e2e.rounds.round_runner import create_topic
from tests.e2e.test_kafka_reads_ottla_files import no_fault_in
from tests.waiting import eventually

PARTITIONS = 3
# The tool itself sets retries to 0; these are what any producer has, with a time-out that fits a test.
RETRIES = (
    "retries=2147483647\nenable.idempotence=true\nrequest.timeout.ms=3000\ndelivery.timeout.ms=60000\nlinger.ms=5\n"
)
TOOLS = "org.apache.kafka.tools"


@pytest.mark.timeout(400)
def test_verifiable_clients_through_faults(cluster: ProcessCluster, tmp_path: Path) -> None:
    topic = "verified"
    create_topic(cluster, topic, {})
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    consumer_words = (
        "--group-id",
        "verifiers",
        "--reset-policy",
        "earliest",
        "--session-timeout",
        "10000",
        "--verbose",
    )
    settings = tmp_path / "producer.properties"
    settings.write_text(RETRIES)
    sending = ("--acks", "-1", "--throughput", "300", "--producer.config", str(settings))
    with (
        start_java_tool(f"{TOOLS}.VerifiableConsumer", *where, *consumer_words) as consumer,
        start_java_tool(f"{TOOLS}.VerifiableProducer", *where, *sending) as producer,
    ):
        eventually(
            lambda: count_acknowledged(producer) > 300 and consumed_offsets(consumer),
            within_s=60,
            message="records go through",
        )
        leader = cluster.partition_state(topic).leader
        cluster.brokers[leader].kill()
        wait_for_acknowledgements(producer)
        cluster.brokers[leader].start()
        eventually(lambda: cluster.is_healthy(), within_s=60, message="whole after a kill")
        paused = cluster.partition_state(topic).leader
        cluster.brokers[paused].pause()
        time.sleep(4)
        cluster.brokers[paused].resume()
        wait_for_acknowledgements(producer)
        eventually(lambda: cluster.is_healthy(), within_s=60, message="whole after a pause")
        cluster.brokers[cluster.controller_id()].restart()
        eventually(lambda: cluster.is_healthy(), within_s=60, message="whole after a restart")
        wait_for_acknowledgements(producer)
        producer.stop()
        sent = {
            event["value"]: (event["partition"], event["offset"])
            for event in producer.events_named("producer_send_success")
        }
        assert producer.events_named("producer_send_error") == []
        eventually(
            lambda: sent.keys() <= consumed_offsets(consumer).keys(), within_s=60, message="the consumer has read all"
        )
        consumer.stop()
    got = consumed_offsets(consumer)
    assert {value: got[value] for value in sent} == sent
    values = [event["value"] for event in consumer.events_named("record_data")]
    places = {(event["partition"], event["offset"]): event["value"] for event in consumer.events_named("record_data")}
    assert len(places) == len(set(values)), "a record is at two places"  # the Java producer is idempotent


def count_acknowledged(producer: JavaToolProcess) -> int:
    return len(producer.events_named("producer_send_success"))


def wait_for_acknowledgements(producer: JavaToolProcess) -> None:
    before = count_acknowledged(producer)
    eventually(lambda: count_acknowledged(producer) > before + 100, within_s=60, message="acknowledgements go on")


def consumed_offsets(consumer: JavaToolProcess) -> dict[str, tuple[int, int]]:
    return {event["value"]: (event["partition"], event["offset"]) for event in consumer.events_named("record_data")}


@pytest.mark.timeout(400)
def test_tools_that_move_and_elect(cluster: ProcessCluster, tmp_path: Path) -> None:
    topic = "moved"
    create_topic(cluster, topic, {})
    for partition in range(PARTITIONS):
        rd.produce(cluster.bootstrap, topic, rd.numbered_messages(0, 2000), partition=partition)
    where = ("--bootstrap-server", cluster.bootstrap)

    said = run_java_tool(f"{TOOLS}.MetadataQuorumCommand", *where, "describe", "--status")
    assert f"LeaderId:{cluster.controller_id()}" in said.replace(" ", "").replace("\t", "")

    plan = tmp_path / "plan.json"
    wanted = {partition: [1 + (partition + n) % 3 for n in range(2)] for partition in range(PARTITIONS)}
    moves = [{"topic": topic, "partition": partition, "replicas": to} for partition, to in wanted.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = (f"{TOOLS}.reassign.ReassignPartitionsCommand", *where, "--reassignment-json-file", str(plan))
    said = run_java_tool(*reassign, "--execute", "--throttle", "10000000")
    assert "Successfully started partition reassignments" in said
    eventually(
        lambda: "still in progress" not in run_java_tool(*reassign, "--verify"), within_s=60, message="it is moved"
    )
    for partition, to in wanted.items():
        seen = cluster.partition_state(topic, partition)
        assert list(seen.replicas) == to and set(seen.isr) == set(to)
        gone = next(broker for number, broker in cluster.brokers.items() if number not in to)
        eventually(lambda gone=gone, p=partition: not (gone.log_dir / f"{topic}-{p}").exists(), message="it left")  # type: ignore[misc]
        assert rd.values_of(rd.consume(cluster.bootstrap, topic, partition=partition)) == [
            record.value for record in rd.numbered_messages(0, 2000)
        ]

    away = cluster.brokers[cluster.partition_state(topic).leader]
    away.restart()
    eventually(lambda: cluster.is_healthy(), within_s=60, message="whole again")
    run_java_tool(f"{TOOLS}.LeaderElectionCommand", *where, "--election-type", "preferred", "--all-topic-partitions")
    for partition, to in wanted.items():

        def is_elected(partition: int = partition, first: int = to[0]) -> bool:
            return cluster.partition_state(topic, partition).leader == first

        eventually(is_elected, message="elected")


@pytest.mark.timeout(400)
def test_replicas_are_equal_after_faults(cluster: ProcessCluster) -> None:
    topic = "compared"
    create_topic(cluster, topic, {})
    for turn in range(4):
        for partition in range(PARTITIONS):
            settings = {"compression_type": ["none", "gzip", "lz4", "zstd"][turn], "enable_idempotence": turn % 2 == 0}
            rd.produce(cluster.bootstrap, topic, rd.numbered_messages(0, 1000), partition=partition, **settings)
        if turn < 3:
            hit = cluster.brokers[turn + 1]
            hit.kill()
            rd.produce(cluster.bootstrap, topic, rd.numbered_messages(0, 500), partition=0)
            hit.start()
            eventually(lambda: cluster.is_healthy(), within_s=60, message="whole again")
    with start_java_tool(
        f"{TOOLS}.ReplicaVerificationTool",
        *("--broker-list", cluster.bootstrap, "--topics-include", topic, "--report-interval-ms", "500"),
    ) as verifier:
        eventually(
            lambda: [line for line in verifier.lines if "max lag is 0 for partition" in line],
            within_s=60,
            message="compared",
        )
        assert not [line for line in verifier.lines if "doesn't match" in line or "Exception" in line], verifier.lines
    replicas = [
        str(path)
        for broker in cluster.brokers.values()
        for partition in range(PARTITIONS)
        for path in sorted((broker.log_dir / f"{topic}-{partition}").glob("*.log"))
    ]
    assert len(replicas) == PARTITIONS * 3
    said = run_java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(replicas))
    no_fault_in(said)
    dumps = [part.partition("\n")[2] for part in said.split("Dumping ")[1:]]
    by_partition = {
        number: {dumps[number + PARTITIONS * broker] for broker in range(3)} for number in range(PARTITIONS)
    }
    assert all(len(found) == 1 for found in by_partition.values()), "replicas differ in what they hold"
