"""Class data sharing archives: Apache Kafka's classes, loaded and verified once, not at each start.

With an archive a broker starts in 1.7 s of processor time instead of 3.4 (7 with the JVM's default
options), a tool in 0.5 s instead of 0.8. The archive holds the classes that one broker had loaded
when it stopped; tools find most of theirs in it. The first test that starts a Kafka version creates
it, which takes about 15 s, and it is stored beside the jars.
"""

import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.jars import SHORT_LIVED_JVM, class_archive_options, class_archive_path, java_command, kafka_classpath
from tests.kafka_folders import format_log_dir
from tests.locks import file_lock
from tests.ports import free_port

KAFKA_READY_LINE = "Kafka Server started"
LOG_READY_LINE = (
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
)
HEAP = "-Xmx512m"
CREATED_WITHIN_S = 120.0


@cache
def short_lived_jvm_options(version: str) -> tuple[str, ...]:
    """JVM options for a broker that lives as long as one test."""
    classpath = kafka_classpath(version)
    with file_lock(class_archive_path(classpath).with_suffix(".lock")):
        if not class_archive_options(classpath):
            _create_archive(version, classpath)
    return (*SHORT_LIVED_JVM, HEAP, *class_archive_options(classpath))


def _create_archive(version: str, classpath: str) -> None:
    """Creates the archive, or prints why the JVM could not: tests then run without it,
    only slower.
    """
    archive = class_archive_path(classpath)
    with tempfile.TemporaryDirectory(prefix="ottla-test-archive-", dir=archive.parent) as name:
        scratch = Path(name)
        command = _broker_command(scratch, version, classpath, f"-XX:ArchiveClassesAtExit={scratch / archive.name}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as broker:
            assert broker.stdout is not None
            try:
                output = []
                for line in broker.stdout:
                    output.append(line)
                    if KAFKA_READY_LINE in line:
                        broker.send_signal(signal.SIGTERM)
                code = broker.wait(CREATED_WITHIN_S)
            finally:
                broker.kill()
        if (made := scratch / archive.name).exists():
            made.rename(archive)  # atomic: other processes never see half an archive
        else:
            print(f"no class archive, exit code {code}:", *output[-20:], sep="\n", file=sys.stderr)


def _broker_command(folder: Path, version: str, classpath: str, option: str) -> list[str]:
    log_dir = folder / "data"
    log_dir.mkdir()
    format_log_dir(log_dir, "1", version)
    port, controller = free_port(), free_port()
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(log_dir),
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return java_command(
        classpath, "kafka.Kafka", str(properties), jvm=(*SHORT_LIVED_JVM, HEAP, option), options=LOG_READY_LINE
    )
