"""A worker of Kafka Connect with Debezium's connector, from their jars on Maven Central."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.cdc.database import NotInstalled

PORT: Final = 8083
CONNECTOR: Final = "orders"
DEBEZIUM: Final = Path(__file__).parent / "debezium"
"""Folder of the connector's configuration and of the pom.xml that lists the jars."""
_WORKER: Final = {
    "group.id": "cdc",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "1000",
    # A worker that was killed is replaced by the next one, not waited for.
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    **{
        f"{kind}.storage.{name}": value
        for kind in ("config", "offset", "status")
        for name, value in (("topic", f"connect-{kind}"), ("replication.factor", "1"))
    },
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
}
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
_STARTS_WITHIN_S: Final = 120.0


def fetch_jars(folder: Path) -> Path:
    """The folder with the jars. Maven fetches them if it does not exist. Raises NotInstalled and
    RuntimeError.
    """
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise NotInstalled("no `mvn` on PATH: install Debian's package maven")
    partial = folder.with_name(f"{folder.name}.partial")
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={partial.absolute()}"]
    fetch = ["mvn", "-q", "-B", "-f", str(DEBEZIUM / "pom.xml"), "dependency:copy-dependencies", *options]
    if subprocess.run(fetch, check=False).returncode:
        raise RuntimeError("Maven cannot fetch the jars")
    partial.rename(folder)
    return folder


def start_worker(
    folder: Path, classpath: str, bootstrap: str, port: int = PORT, jvm: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Starts a worker. Its output is in `folder`/connect.log. Its offsets are in a topic, so that a
    worker that is started after it continues where it was. Raises NotInstalled.
    """
    java = shutil.which("java")
    if java is None:
        raise NotInstalled("no `java` on PATH: install Java 17 or newer")
    properties = folder / "worker.properties"
    settings = _WORKER | {"bootstrap.servers": bootstrap, "listeners": f"http://127.0.0.1:{port}"}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = ("org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
    with (folder / "connect.log").open("ab") as log:
        # In a session of its own: Ctrl-C in the terminal is not sent to it.
        return subprocess.Popen(
            [java, *_JVM, *jvm, "-cp", classpath, *main], stdout=log, stderr=log, start_new_session=True
        )


def put_connector(worker: subprocess.Popen[bytes], config: Mapping[str, str], port: int = PORT) -> None:
    """Creates or changes the connector when the worker has started. Raises RuntimeError."""
    url = f"http://127.0.0.1:{port}/connectors/{CONNECTOR}/config"
    request = urllib.request.Request(
        url, json.dumps(config).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while worker.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(request, timeout=30).close()
            return
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409, 503):  # the worker starts, or the group rebalances
                raise RuntimeError(f"Connect refuses the connector: {error.read().decode()}") from error
        except OSError:  # not yet listening
            pass
        time.sleep(0.2)
    raise RuntimeError("Connect has not started; see connect.log")
