"""Apache Kafka's test programs and tools on a cluster: verifiable clients while brokers are killed,
paused and restarted, comparison of replicas, reassignment and leader election.
"""

import json
import time
from pathlib import Path

import pytest

from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster
from tests.e2e.dump_log_segments import assert_no_faults, dump_log_segments
from tests.e2e.java_tools import JavaToolProcess, run_java_tool, start_java_tool
from tests.e2e.rounds.round_runner import create_topic
from tests.waiting import eventually

PARTITIONS = 3
PAUSE_S = 4.0  # of a paused broker; it is fenced meanwhile
# The tool sets retries to 0. These are the defaults of producers, with timeouts that fit a test.
RETRIES = (
    "retries=2147483647\nenable.idempotence=true\nrequest.timeout.ms=3000\ndelivery.timeout.ms=60000\nlinger.ms=5\n"
)
TOOLS = "org.apache.kafka.tools"


@pytest.mark.slow
def test_verifiable_consumer_reads_all_that_was_acknowledged_under_faults(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    topic = "verified"
    create_topic(cluster, topic, {})
    topic_options = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    consumer_options = (
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
    producer_options = ("--acks", "-1", "--throughput", "300", "--producer.config", str(settings))
    with (
        start_java_tool(f"{TOOLS}.VerifiableConsumer", *topic_options, *consumer_options) as consumer,
        start_java_tool(f"{TOOLS}.VerifiableProducer", *topic_options, *producer_options) as producer,
    ):
        eventually(
            lambda: count_acknowledged(producer) > 300 and consumed_offsets(consumer),
            within_s=60,
            message="300 acknowledged and some consumed records",
        )
        leader = cluster.partition_state(topic).leader
        cluster.brokers[leader].kill()
        wait_for_acknowledgements(producer)
        cluster.brokers[leader].start()
        cluster.wait_until_healthy()
        paused = cluster.partition_state(topic).leader
        cluster.brokers[paused].pause()
        time.sleep(PAUSE_S)
        cluster.brokers[paused].resume()
        wait_for_acknowledgements(producer)
        cluster.wait_until_healthy()
        cluster.brokers[cluster.controller_id()].restart()
        cluster.wait_until_healthy()
        wait_for_acknowledgements(producer)
        producer.stop()
        acknowledged = {
            event["value"]: (event["partition"], event["offset"])
            for event in producer.events_named("producer_send_success")
        }
        assert producer.events_named("producer_send_error") == []
        eventually(
            lambda: acknowledged.keys() <= consumed_offsets(consumer).keys(),
            within_s=60,
            message="a consumer that has read all records",
        )
        consumer.stop()
    consumed = consumed_offsets(consumer)
    assert {value: consumed[value] for value in acknowledged} == acknowledged
    values = [event["value"] for event in consumer.events_named("record_data")]
    values_by_offset = {
        (event["partition"], event["offset"]): event["value"] for event in consumer.events_named("record_data")
    }
    assert len(values_by_offset) == len(set(values)), "a record has two offsets"  # the Java producer is idempotent


def count_acknowledged(producer: JavaToolProcess) -> int:
    return len(producer.events_named("producer_send_success"))


def wait_for_acknowledgements(producer: JavaToolProcess) -> None:
    before = count_acknowledged(producer)
    eventually(lambda: count_acknowledged(producer) > before + 100, within_s=60, message="100 more acknowledgements")


def consumed_offsets(consumer: JavaToolProcess) -> dict[str, tuple[int, int]]:
    return {event["value"]: (event["partition"], event["offset"]) for event in consumer.events_named("record_data")}


def test_tools_reassign_partitions_and_elect_preferred_leaders(cluster: ProcessCluster, tmp_path: Path) -> None:
    topic = "moved"
    create_topic(cluster, topic, {})
    for partition in range(PARTITIONS):
        rd.produce(cluster.bootstrap, topic, rd.numbered_messages(0, 2000), partition=partition)
    bootstrap = ("--bootstrap-server", cluster.bootstrap)

    output = run_java_tool(f"{TOOLS}.MetadataQuorumCommand", *bootstrap, "describe", "--status")
    assert f"LeaderId:{cluster.controller_id()}" in output.replace(" ", "").replace("\t", "")

    plan = tmp_path / "plan.json"
    targets = {partition: [1 + (partition + n) % 3 for n in range(2)] for partition in range(PARTITIONS)}
    moves = [{"topic": topic, "partition": partition, "replicas": replicas} for partition, replicas in targets.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = (f"{TOOLS}.reassign.ReassignPartitionsCommand", *bootstrap, "--reassignment-json-file", str(plan))
    output = run_java_tool(*reassign, "--execute", "--throttle", "10000000")
    assert "Successfully started partition reassignments" in output
    eventually(
        lambda: "still in progress" not in run_java_tool(*reassign, "--verify"),
        within_s=60,
        message="a completed reassignment",
    )
    for partition, replicas in targets.items():
        state = cluster.partition_state(topic, partition)
        assert list(state.replicas) == replicas and set(state.isr) == set(replicas)
        former = next(broker for number, broker in cluster.brokers.items() if number not in replicas)
        folder = former.log_dir / f"{topic}-{partition}"
        eventually(lambda folder=folder: not folder.exists(), message="a removed replica")  # type: ignore[misc]
        assert rd.values_of(rd.consume(cluster.bootstrap, topic, partition=partition)) == [
            record.value for record in rd.numbered_messages(0, 2000)
        ]

    cluster.brokers[cluster.partition_state(topic).leader].restart()
    cluster.wait_until_healthy()
    run_java_tool(
        f"{TOOLS}.LeaderElectionCommand", *bootstrap, "--election-type", "preferred", "--all-topic-partitions"
    )
    for partition, replicas in targets.items():

        def is_elected(partition: int = partition, first: int = replicas[0]) -> bool:
            return cluster.partition_state(topic, partition).leader == first

        eventually(is_elected, message="the preferred leader")


@pytest.mark.slow
def test_replicas_are_equal_after_faults(cluster: ProcessCluster) -> None:
    topic = "compared"
    create_topic(cluster, topic, {})
    for turn in range(4):
        for partition in range(PARTITIONS):
            settings = {"compression_type": ["none", "gzip", "lz4", "zstd"][turn], "enable_idempotence": turn % 2 == 0}
            rd.produce(cluster.bootstrap, topic, rd.numbered_messages(0, 1000), partition=partition, **settings)
        if turn < 3:
            victim = cluster.brokers[turn + 1]
            victim.kill()
            rd.produce(cluster.bootstrap, topic, rd.numbered_messages(0, 500), partition=0)
            victim.start()
            cluster.wait_until_healthy()
    with start_java_tool(
        f"{TOOLS}.ReplicaVerificationTool",
        *("--broker-list", cluster.bootstrap, "--topics-include", topic, "--report-interval-ms", "500"),
    ) as verifier:
        eventually(
            lambda: [line for line in verifier.lines if "max lag is 0 for partition" in line],
            within_s=60,
            message="replicas that were compared",
        )
        assert not [line for line in verifier.lines if "doesn't match" in line or "Exception" in line], verifier.lines
    segments = [
        str(path)
        for broker in cluster.brokers.values()
        for partition in range(PARTITIONS)
        for path in sorted((broker.log_dir / f"{topic}-{partition}").glob("*.log"))
    ]
    assert len(segments) == PARTITIONS * 3
    output = dump_log_segments("--deep-iteration", "--files", ",".join(segments))
    assert_no_faults(output)
    dumps = [part.partition("\n")[2] for part in output.split("Dumping ")[1:]]
    by_partition = {
        number: {dumps[number + PARTITIONS * broker] for broker in range(3)} for number in range(PARTITIONS)
    }
    assert all(len(found) == 1 for found in by_partition.values()), "replicas have different records"
