"""The console of `ottla up`."""

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, resource
from tests.waiting import eventually

ADDRESS = re.compile(r"console of cluster demo: (http://127\.0\.0\.1:(\d+))")


def cluster(up: UpProcess, config: Mapping[str, str] = MappingProxyType({}), replicas: int = 1) -> Json:
    listeners = [{"name": "plain", "port": up.port}]
    return resource("Cluster", "demo", replicas=replicas, listeners=listeners, config=dict(config))


def find_console(up: UpProcess) -> tuple[str, int]:
    """URL and port, once they are printed."""
    found = ADDRESS.search(up.wait_for_line("console of cluster demo: "))
    assert found is not None
    return found.group(1), int(found.group(2))


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        text: str = response.read().decode()
        return text


def test_console_serves_the_cluster_at_the_printed_address(up: UpProcess) -> None:
    up.write_resources(cluster(up))
    up.start()
    url, _ = find_console(up)
    assert "All is well: one broker" in read(f"{url}/")
    assert "Create a topic" in read(f"{url}/topics"), "everybody on this machine may write"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "attacker.example"}), timeout=30)
    assert refused.value.code == 421
    assert up.stop() == 0


def test_console_shows_why_a_pipeline_does_not_run(up: UpProcess, tmp_path: Path) -> None:
    topic = resource("Topic", "greetings", clusterRef={"name": "demo"}, partitions=1, replicas=1)
    pipeline = resource(
        "Pipeline",
        "copy",
        clusterRef={"name": "demo"},
        sources={"greetings": {"topic": "greetings", "format": {"type": "raw"}}},
        sinks=[{"from": "greetings", "console": {}}],
    )
    up.write_resources(cluster(up), topic, pipeline)
    up.start(PATH=str(tmp_path), JAVA_HOME="")
    url, _ = find_console(up)
    page = eventually(lambda: find_text(f"{url}/pipeline?name=copy", "Java 17"), within_s=60)
    assert "topic greetings" in page, "the graph names its source"
    up.write_resources(cluster(up), topic)
    eventually(lambda: find_text(f"{url}/pipelines", "No pipeline has been reported"), within_s=60)
    assert up.stop() == 0


@pytest.mark.slow
def test_console_shows_a_rolling_restart_until_it_has_ended(up: UpProcess) -> None:
    up.write_resources(cluster(up, replicas=3))
    up.start()
    url, _ = find_console(up)
    up.wait_for_line("3 brokers ready after")
    assert "Rolling restart" not in read(f"{url}/restarts")
    up.write_resources(cluster(up, {"num.partitions": "4"}, replicas=3))
    eventually(lambda: find_text(f"{url}/restarts", "still to be restarted: settings num.partitions"), within_s=60)
    eventually(lambda: find_text(f"{url}/restarts", "to serve again"), within_s=60)
    for id_ in (1, 2, 3):
        up.wait_for_line(f"restarting broker {id_} (settings num.partitions")
    eventually(lambda: (page := try_read(f"{url}/restarts")) is not None and "Rolling restart" not in page, within_s=60)
    assert up.stop() == 0


def try_read(url: str) -> str | None:
    """The page, which may be empty; None while its broker does not run."""
    try:
        return read(url)
    except OSError:
        return None


def find_text(url: str, text: str) -> str:
    """The page if it has the text; empty otherwise."""
    page = try_read(url) or ""
    return page if text in page else ""


def test_port_that_is_taken_is_replaced_by_another(up: UpProcess) -> None:
    with socket.create_server(("127.0.0.1", up.port + 1000)):
        up.write_resources(cluster(up))
        up.start()
        url, port = find_console(up)
        assert port != up.port + 1000
        assert "All is well: one broker" in read(f"{url}/")
        assert up.stop() == 0


def test_console_is_not_served_where_it_is_disabled(up: UpProcess) -> None:
    up.write_resources(cluster(up, {"console.enable": "false"}))
    up.start()
    up.wait_for_line("first broker ready after")
    assert up.stop() == 0
    assert not any("console of cluster" in line for line in up.lines)
