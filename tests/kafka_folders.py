"""Data folders as `kafka-storage format` creates them."""

import atexit
import base64
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.jars import java_command, kafka_classpath

CLUSTER_ID = "T3R0bGFUZXN0Q2x1c3Rlcg"


def format_log_dir(log_dir: Path, node_id: str, version: str) -> None:
    """Formats `log_dir` for this node, with a new random directory id."""
    shutil.copytree(_formatted_template(version), log_dir, dirs_exist_ok=True)
    properties = log_dir / "meta.properties"
    text = re.sub(r"node\.id=.*", f"node.id={node_id}", properties.read_text())
    directory = base64.urlsafe_b64encode(b"\1" + os.urandom(15)).decode().rstrip("=")
    properties.write_text(re.sub(r"directory\.id=.*", f"directory.id={directory}", text))


@cache
def _formatted_template(version: str) -> Path:
    """A formatted folder to copy. Created once per test process, because each run of the tool
    starts a JVM.
    """
    place = Path(tempfile.mkdtemp(prefix="ottla-test-format-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    properties = place / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:2\nlog.dirs={place}/data\n"
    )
    command = java_command(
        kafka_classpath(version), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)
    )
    subprocess.run(command, check=True, capture_output=True, text=True)
    return place / "data"
