"""`ottla up` with Clusters that let nobody in without a login: a pipeline and a mirror log in as
Users of their own, which may do what these need and nothing else.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.up_process import UpProcess, up_process
from tests.e2e.up_resources import Json, resource
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(400)

LOAD = 'print(\'{"topic": "greetings", "value": {"word": "hello"}}\')\n'
ACL = {"type": "ACL"}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    with up_process(tmp_path) as process:
        yield process


def cluster(name: str, port: int) -> Json:
    listeners = [{"name": "clients", "port": port, "authentication": "SCRAM"}]
    return resource("Cluster", name, replicas=1, listeners=listeners, authorization=ACL)


def login_options(up: UpProcess, cluster: str) -> tuple[str, ...]:
    """Options with which `ottla` commands log in as `ottla up` does."""
    folder = up.folder / ".ottla" / cluster
    listeners = json.loads((folder / "1" / "settings.json").read_text())["listeners"]
    addresses = dict(it.split("://") for it in listeners.split(","))
    login = folder / "inter-broker-login" / "client.properties"
    return ("--bootstrap", addresses["INTER_BROKER"], "--command-config", str(login))


def read(up: UpProcess, cluster: str, *arguments: str) -> str:
    """Output of an `ottla` command; empty if it fails."""
    done = up.run_ottla(*arguments, *login_options(up, cluster))
    return done.stdout if done.returncode == 0 else ""


def test_a_pipeline_and_a_mirror_log_in_as_users_of_their_own(up: UpProcess) -> None:
    topic = resource("Topic", "greetings", clusterRef={"name": "demo"})
    other = resource("Topic", "other", clusterRef={"name": "demo"})
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
    mirror = resource(
        "Mirror",
        "west",
        source={"clusterRef": {"name": "demo"}},
        target={"clusterRef": {"name": "copy"}},
        topics=["shouts", "greet*"],
        groups=["ottla-pipeline-*"],
    )
    up.write_resources(cluster("demo", up.port), cluster("copy", up.port + 2), topic, other, pipeline, mirror)
    (up.folder / "resources" / "load-demo.py").write_text(LOAD)
    up.start()
    up.wait_for_line("first pipeline row after", within_s=200)
    eventually(
        lambda: '{"word":"HELLO"}' in read(up, "copy", "consume", "shouts", "--from", "beginning", "--exit"),
        within_s=60,
        message=lambda: f"the row at the mirror's target: {up.lines}",
    )
    eventually(
        lambda: "ottla-pipeline-shout" in read(up, "copy", "groups", "list"),
        within_s=60,
        message=lambda: f"the pipeline's group at the mirror's target: {up.lines}",
    )
    rules = json.loads(read(up, "demo", "acls", "list", "-o", "json"))
    assert {it["principal"] for it in rules} == {"User:pipeline-shout", "User:mirror-west"}
    for principal, operation, topic_name, is_allowed in (
        ("pipeline-shout", "read", "greetings", True),
        ("pipeline-shout", "read", "other", False),
        ("pipeline-shout", "write", "greetings", False),
        ("mirror-west", "read", "greetings", True),
        ("mirror-west", "read", "other", False),
        ("mirror-west", "write", "shouts", False),
    ):
        explain = ("acls", "explain", "-p", principal, "--operation", operation, "--topic", topic_name)
        said = up.run_ottla(*explain, *login_options(up, "demo"))
        assert (said.returncode == 0) is is_allowed, said
    assert not [it for it in up.lines if "Traceback" in it]
    assert up.stop() == 0
    up.write_resources(cluster("demo", up.port), cluster("copy", up.port + 2), topic, other)
    up.start()
    up.wait_for_line("revoked, because their Users are deleted: mirror-west, pipeline-shout")
