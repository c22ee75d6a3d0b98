"""Voters of the metadata log, described, removed and added by Kafka's own tool, and replaced by
their leader.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.describe_quorum.v2.response import ReplicaState

from ottla_broker.runtime import uuid_text
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.java_tools import run_java_tool
from tests.waiting import eventually

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with run_cluster("ottla", 4) as running:
        yield running


def metadata_quorum(cluster: ProcessCluster, *arguments: str) -> str:
    return run_java_tool(f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", cluster.bootstrap, *arguments)


def dynamic_configs(cluster: ProcessCluster, broker: int) -> str:
    return run_java_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", cluster.bootstrap, "--describe", "--entity-type", "brokers"),
        *("--entity-name", str(broker)),
    )


def voters(cluster: ProcessCluster) -> dict[int, ReplicaState]:
    return {int(voter.replica_id): voter for voter in cluster.describe_quorum().current_voters}


def test_the_tool_describes_the_quorum(cluster: ProcessCluster) -> None:
    status = metadata_quorum(cluster, "describe", "--status")
    assert re.search(rf"LeaderId:\s+{cluster.controller_id()}\b", status)
    line = next(line for line in status.splitlines() if line.startswith("CurrentVoters:"))
    for broker, voter in voters(cluster).items():
        directory_id = uuid_text(voter.replica_directory_id) if voter.replica_directory_id else ""
        assert re.search(rf'"id": {broker}, "directoryId": "{re.escape(directory_id)}", "endpoints": \["', line), line
    replication = metadata_quorum(cluster, "describe", "--replication")
    assert len(re.findall(r"\s(?:Leader|Follower|Observer)\s*$", replication, re.MULTILINE)) == 4


def test_the_tool_removes_a_voter_that_another_broker_replaces_and_adds_it_again(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    before = voters(cluster)
    leader = cluster.controller_id()
    removed = next(broker for broker in before if broker != leader)
    directory_id = before[removed].replica_directory_id
    assert directory_id is not None
    output = metadata_quorum(
        cluster,
        "remove-controller",
        "--controller-id",
        str(removed),
        "--controller-directory-id",
        uuid_text(directory_id),
    )
    assert re.search(rf"Removed\s+KRaft controller {removed}\b", output)
    others = set(cluster.brokers) - {removed}
    eventually(lambda: set(voters(cluster)) == others, within_s=20, message="another broker votes instead")
    assert "controller.quorum.auto.join.enable=false" in dynamic_configs(cluster, removed)

    broker = cluster.brokers[removed]
    properties = tmp_path / "controller.properties"
    properties.write_text(
        f"node.id={removed}\nprocess.roles=controller\nlog.dirs={broker.log_dir}\n"
        f"listeners=CONTROLLER://{broker.bootstrap}\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={cluster.bootstrap}\n"
    )
    output = metadata_quorum(cluster, "--command-config", str(properties), "add-controller")
    assert f"Added controller {removed}" in output
    assert set(voters(cluster)) == set(cluster.brokers)
    assert "controller.quorum.auto.join.enable" not in dynamic_configs(cluster, removed)


def test_the_tool_says_that_it_cannot_remove_a_broker_that_is_no_voter(cluster: ProcessCluster) -> None:
    with pytest.raises(AssertionError, match="is no voter"):
        metadata_quorum(
            cluster, "remove-controller", "--controller-id", "77", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"
        )
