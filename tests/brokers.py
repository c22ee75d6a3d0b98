"""A broker as a process, the same way for Ottla and for Apache Kafka.

    with ottla_broker(num_partitions=3) as broker:
        connect(broker.bootstrap)

Settings are given with `_` for `.` and go over the ones below. `broker.stop()`, `.kill()` and `.start()` stop and
restart it on the same ports and folders. Leaving the block kills what still runs (by process id) and removes the data.
What a broker wrote is kept in `broker.log_text()`; `tests/conftest.py` shows it when a test fails.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.class_archives import READY, SAYS_READY, short_lived
from tests.jars import KAFKA, java, kafka_classpath
from tests.kafka_folders import format_folder
from tests.ports import free_port

READY_WITHIN_S = 60.0
STOPS_WITHIN_S = 30.0
# What one broker alone needs (Kafka's own defaults want three), and what keeps tests short.
FOR_TESTS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
OTTLA_HAS_NOT = ("transaction.state.log.",)  # settings of rooms that are still to be built
AS_ANYBODY_HAS_IT = ("-Xms1g", "-Xmx1g")  # Kafka's own start script sets this

running: "list[BrokerProcess]" = []


@dataclass
class BrokerProcess:
    """A broker that runs, or ran. `command` is a function of nothing, so that a restart may see changed `settings`."""

    kind: str
    port: int
    log_dir: Path
    folder: Path
    settings: dict[str, str]
    command: "Callable[[BrokerProcess], Sequence[str]]"
    ready_line: str
    host: str = "127.0.0.1"
    namespace: str = ""  # of the network that it runs in (tests/networks.py); empty: this machine's own
    process: subprocess.Popen[str] | None = None
    spawned_at: float = 0.0  # time.monotonic()
    _ready: threading.Event = field(default_factory=threading.Event)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.kind} does not run"
        return self.process.pid

    def start(self) -> None:
        """Returns when the broker has said that it serves."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Creates the process, and does not wait."""
        command = [*(("ip", "netns", "exec", self.namespace) if self.namespace else ()), *self.command(self)]
        self._ready = threading.Event()
        log = (self.folder / "broker.log").open("a")
        self.spawned_at = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            stdin=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
        threading.Thread(target=self._follow, args=(self.process, self._ready), daemon=True).start()

    def wait_until_ready(self) -> None:
        """RuntimeError with what the broker wrote when it ended, or is not ready in time."""
        assert self.process is not None
        if not self._ready.wait(READY_WITHIN_S) or self.process.poll() is not None:
            code = self.process.poll()
            why = f"ended with exit code {code}" if code is not None else f"not ready in {READY_WITHIN_S} s"
            said = self.log_tail()
            self.kill()
            raise RuntimeError(f"{self.kind} {why}\n{said}")

    def _follow(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines, (self.folder / "broker.log").open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                if self.ready_line in line:
                    ready.set()
        process.wait()
        ready.set()  # it ended: whoever waits has to look

    def stop(self, within_s: float = STOPS_WITHIN_S) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is closed."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: the process stands still, and its connections stay open and silent."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_tail(self, characters: int = 20_000) -> str:
        """The end of what the broker wrote, stdout and stderr."""
        path = self.folder / "broker.log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else ""

    def resident_memory_kib(self) -> int:
        """Resident memory (VmRSS)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def cpu_s(self) -> float:
        """Processor seconds taken so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def run_ottla_broker(
    *, folder: Path | None = None, start: bool = True, test_settings: bool = True, **settings: object
) -> Iterator[BrokerProcess]:
    """One Ottla broker on a free port. `folder`: where data and the log of the process go (default: a new one, removed
    afterwards). `start=False`: the caller lays something into `log_dir` first. `test_settings=False`: own defaults."""
    base = {key: value for key, value in FOR_TESTS.items() if test_settings and not key.startswith(OTTLA_HAS_NOT)}
    with _process("ottla", folder, start, base | _dotted(settings), ottla_command, " ready on ") as broker:
        yield broker


@contextmanager
def run_apache_kafka(
    *,
    version: str = KAFKA,
    folder: Path | None = None,
    start: bool = True,
    test_settings: bool = True,
    **settings: object,
) -> Iterator[BrokerProcess]:
    """One Apache Kafka broker in KRaft combined mode; else like `ottla_broker`. `test_settings=False`: its JVM, too, is as anybody has it."""
    base = (
        FOR_TESTS
        if test_settings
        else {key: value for key, value in FOR_TESTS.items() if key.endswith((".replication.factor", ".min.isr"))}
    )
    command = partial(kafka_command, jvm=() if test_settings else AS_ANYBODY_HAS_IT, version=version)
    with _process("kafka", folder, start, base | _dotted(settings), command, READY) as broker:
        yield broker


BROKERS = {"ottla": run_ottla_broker, "kafka": run_apache_kafka}


@contextmanager
def _process(
    kind: str,
    folder: Path | None,
    start: bool,
    settings: dict[str, str],
    command: Callable[[BrokerProcess], Sequence[str]],
    mark: str,
) -> Iterator[BrokerProcess]:
    place = folder or Path(tempfile.mkdtemp(prefix=f"ottla-test-{kind}-"))
    log_dir = place / "data"
    log_dir.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(kind, free_port(), log_dir, place, dict(settings), command, mark)
    running.append(broker)
    try:
        if start:
            broker.start()
        yield broker
    finally:
        broker.kill()
        broker.settings.clear()
        running.remove(broker)
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)


def environment() -> dict[str, str]:
    """Ours, with this checkout's broker in front, and with byte code kept as any installation keeps it."""
    package = str(Path(__file__).parent.parent / "broker-image")
    ours = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return ours | {"PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}


def _dotted(settings: Mapping[str, object]) -> dict[str, str]:
    return {
        key.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }


def ottla_command(broker: BrokerProcess) -> list[str]:
    settings = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://{broker.host}:{broker.port}",
        "log.dirs": str(broker.log_dir),
    } | broker.settings
    return [
        sys.executable,
        "-m",
        "ottla_broker",
        *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")),
    ]


def kafka_command(broker: BrokerProcess, jvm: Sequence[str] = (), version: str = KAFKA) -> list[str]:
    """`jvm`: instead of options for a JVM that starts quickly and ends soon."""
    controller = broker.folder / "controller.port"
    if not controller.exists():
        controller.write_text(str(free_port()))
    port = controller.read_text()
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "log.dirs": str(broker.log_dir),
    } | broker.settings
    properties = broker.folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    if not (broker.log_dir / "meta.properties").exists():
        format_folder(broker.log_dir, settings["node.id"], version)
    return java(
        kafka_classpath(version), "kafka.Kafka", str(properties), jvm=jvm or short_lived(version), options=SAYS_READY
    )
