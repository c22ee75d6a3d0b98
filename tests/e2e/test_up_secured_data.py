"""`ottla up` with Clusters that require logins: a pipeline and a mirror log in as Users of their
own, whose rules allow only what the pipeline and the mirror need.
"""

import json
from typing import Any

import pytest

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, login_options, resource, shouting_pipeline
from tests.waiting import eventually

LOAD = 'print(\'{"topic": "greetings", "value": {"word": "hello"}}\')\n'
ACL = {"type": "ACL"}


def cluster(name: str, port: int, **spec: Any) -> Json:
    listeners = [{"name": "clients", "port": port, "authentication": "SCRAM"}]
    return resource("Cluster", name, **{"replicas": 1, "listeners": listeners, "authorization": ACL, **spec})


def read(up: UpProcess, cluster: str, *arguments: str) -> str:
    """Output of an `ottla` command; empty if it fails."""
    done = up.run_ottla(*arguments, *login_options(up, cluster))
    return done.stdout if done.returncode == 0 else ""


def read_records(up: UpProcess, cluster: str, topic: str) -> str:
    """Records of a topic, read by the operator's login; empty while the topic has none. This login
    may read no topic, but may create rules: here it creates one for itself, which the audit log
    has to show, and removes it again.
    """
    consume = ("consume", topic, "--from", "beginning", "--exit", *login_options(up, cluster))
    refused = up.run_ottla(*consume)
    if refused.returncode == 0:  # a topic without records: nothing was fetched
        assert not refused.stdout
        return ""
    assert "authoriz" in refused.stderr, refused
    rule = ("acls", "add", "-p", "ottla-operator", "--allow", "read", "--topic", topic)
    added = up.run_ottla(*rule, *login_options(up, cluster))
    assert added.returncode == 0, added
    log = (up.folder / ".ottla" / cluster / "1" / "output.log").read_text()
    assert '"principal":"User:ottla-operator"' in log and '"request":"CreateAcls"' in log
    records = up.run_ottla(*consume).stdout
    removed = up.run_ottla("acls", "remove", "-p", "ottla-operator", "--yes", *login_options(up, cluster))
    assert removed.returncode == 0, removed
    return records


@pytest.mark.slow
def test_a_pipeline_and_a_mirror_log_in_over_tls_as_users_of_their_own(up: UpProcess) -> None:
    listeners = [{"name": "clients", "port": up.port, "tls": True, "authentication": "SCRAM"}]
    demo = cluster("demo", up.port, listeners=listeners, tls={"issuer": "Internal"})  # SASL_SSL
    topic = resource("Topic", "greetings", clusterRef={"name": "demo"})
    other = resource("Topic", "other", clusterRef={"name": "demo"})
    mirror = resource(
        "Mirror",
        "west",
        source={"clusterRef": {"name": "demo"}},
        target={"clusterRef": {"name": "copy"}},
        topics=["shouts", "greet*"],
        groups=["ottla-pipeline-*"],
    )
    up.write_resources(demo, cluster("copy", up.port + 2), topic, other, shouting_pipeline(), mirror)
    (up.folder / "resources" / "load-demo.py").write_text(LOAD)
    up.start()
    up.wait_for_line("first pipeline row after", within_s=200)
    eventually(
        lambda: "shouts" in read(up, "copy", "topics", "list"),
        within_s=60,
        message=lambda: f"the topic at the mirror's target: {up.lines}",
    )
    eventually(
        lambda: '{"word":"HELLO"}' in read_records(up, "copy", "shouts"),
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
        completed = up.run_ottla(*explain, *login_options(up, "demo"))
        assert (completed.returncode == 0) is is_allowed, completed
    assert not [it for it in up.lines if "Traceback" in it]
    assert up.stop() == 0
    up.write_resources(demo, cluster("copy", up.port + 2), topic, other)
    up.start()
    up.wait_for_line("revoked, because no User has these names any more: mirror-west, pipeline-shout")


@pytest.mark.slow
def test_a_pipeline_logs_in_by_a_certificate_where_clients_have_no_other_login(up: UpProcess) -> None:
    listeners = [{"name": "clients", "port": up.port, "tls": True, "authentication": "TLS"}]
    demo = cluster("demo", up.port, listeners=listeners, tls={"issuer": "Internal"})
    topic = resource("Topic", "greetings", clusterRef={"name": "demo"})
    up.write_resources(demo, topic, shouting_pipeline())
    (up.folder / "resources" / "load-demo.py").write_text(LOAD)
    up.start()
    up.wait_for_line("first pipeline row after", within_s=200)
    assert '{"word":"HELLO"}' in read_records(up, "demo", "shouts")
    rules = json.loads(read(up, "demo", "acls", "list", "-o", "json"))
    assert {it["principal"] for it in rules} == {"User:CN=pipeline-shout"}
    files = up.folder / ".ottla" / "demo" / "users" / "pipeline-shout"
    key = (files / "user.key").read_bytes().splitlines()[1]
    logs = [it.read_bytes() for it in (up.folder / ".ottla").rglob("*.log")]
    assert logs and not any(key in it for it in logs)
