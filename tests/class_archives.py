"""The classes of a Kafka, laid out as a JVM holds them (class data sharing): read, checked and linked once instead of at every start.

A broker is there after 1.7 s of processor time instead of 3.4 (7 with the JVM's own options), a tool after 0.5 instead of 0.8. The archive holds what one broker had loaded
when it ended; tools find most of theirs in it. It is made when a test first starts that version, which takes a quarter of a minute, and kept with its jars.
"""

import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.jars import SHORT_LIVED, archived, class_archive, java, kafka_classpath
from tests.kafka_folders import format_folder
from tests.locks import locked
from tests.ports import free_port

READY = "Kafka Server started"
SAYS_READY = (
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
)
HEAP = "-Xmx512m"
MADE_WITHIN_S = 120.0


@cache
def short_lived(version: str) -> tuple[str, ...]:
    """Options for the JVM of a broker that lives for a test."""
    classpath = kafka_classpath(version)
    with locked(class_archive(classpath).with_suffix(".lock")):
        if not archived(classpath):
            _make(version, classpath)
    return (*SHORT_LIVED, HEAP, *archived(classpath))


def _make(version: str, classpath: str) -> None:
    """A JVM that cannot do this is slower, and that is all: it is said, and tests go on."""
    archive = class_archive(classpath)
    with tempfile.TemporaryDirectory(prefix="ottla-test-archive-", dir=archive.parent) as name:
        scratch = Path(name)
        command = _broker(scratch, version, classpath, f"-XX:ArchiveClassesAtExit={scratch / archive.name}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as broker:
            assert broker.stdout is not None
            try:
                said = []
                for line in broker.stdout:
                    said.append(line)
                    if READY in line:
                        broker.send_signal(signal.SIGTERM)
                code = broker.wait(MADE_WITHIN_S)
            finally:
                broker.kill()
        if (made := scratch / archive.name).exists():
            made.rename(archive)  # all of it or nothing
        else:
            print(f"no class archive, exit code {code}:", *said[-20:], sep="\n", file=sys.stderr)


def _broker(folder: Path, version: str, classpath: str, option: str) -> list[str]:
    log_dir = folder / "data"
    log_dir.mkdir()
    format_folder(log_dir, "1", version)
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
    return java(classpath, "kafka.Kafka", str(properties), jvm=(*SHORT_LIVED, HEAP, option), options=SAYS_READY)
