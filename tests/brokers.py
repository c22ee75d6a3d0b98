"""A broker process, with the same interface for Ottla and for Apache Kafka.

    with run_ottla_broker(num_partitions=3) as broker:
        connect(broker.bootstrap)

Settings are keyword arguments with `_` in place of `.`; they override the test settings below.
`broker.stop()`, `.kill()` and `.start()` stop and restart the broker on the same ports and folders.
Leaving the block kills the process and removes its temporary folder. `broker.log_tail()` returns
the end of what the broker printed; `tests/conftest.py` adds it to the report of a failed test.
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

import ottla_broker
from tests.class_archives import KAFKA_READY_LINE, LOG_READY_LINE, short_lived_jvm_options
from tests.daemons import resident_memory_kib
from tests.jars import KAFKA, java_command, kafka_classpath
from tests.kafka_folders import format_log_dir
from tests.ports import free_port

READY_WITHIN_S = 60.0
STOPS_WITHIN_S = 30.0
# Replication factors for a single broker (Kafka's defaults are 3), and settings that shorten tests.
TEST_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
KAFKA_DEFAULT_HEAP = ("-Xms1g", "-Xmx1g")  # what kafka-server-start.sh sets

started_brokers: "list[BrokerProcess]" = []


@dataclass
class BrokerProcess:
    """A broker process, running or stopped. `command` is called at each start, so a restart uses
    changed `settings`.
    """

    kind: str
    port: int
    log_dir: Path
    folder: Path
    settings: dict[str, str]
    command: "Callable[[BrokerProcess], Sequence[str]]"
    ready_line: str
    host: str = "127.0.0.1"
    namespace: str = ""  # network namespace (tests/networks.py); empty: the host's own
    process: subprocess.Popen[str] | None = None
    spawned_at: float = 0.0  # time.monotonic()
    _ready: threading.Event = field(default_factory=threading.Event)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.kind} was not started"
        return self.process.pid

    def start(self) -> None:
        """Starts the broker and returns when it has printed its ready line."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Creates the process without waiting until it is ready."""
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
            env=broker_environment(),
            start_new_session=True,
        )
        threading.Thread(target=self._copy_output, args=(self.process, self._ready), daemon=True).start()

    def wait_until_ready(self) -> None:
        """Raises RuntimeError with the broker's output, and kills the broker, if it exits or is not
        ready within READY_WITHIN_S.
        """
        assert self.process is not None
        if not self._ready.wait(READY_WITHIN_S) or self.process.poll() is not None:
            code = self.process.poll()
            reason = f"exited with code {code}" if code is not None else f"not ready after {READY_WITHIN_S} s"
            output = self.log_tail()
            self.kill()
            raise RuntimeError(f"{self.kind} {reason}\n{output}")

    def _copy_output(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines, (self.folder / "broker.log").open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                if self.ready_line in line:
                    ready.set()
        process.wait()
        ready.set()  # wakes wait_until_ready(), which then reports the exit

    def stop(self, within_s: float = STOPS_WITHIN_S) -> int:
        """Sends SIGTERM and returns the exit code. Raises TimeoutExpired after `within_s`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def kill(self) -> None:
        """Sends SIGKILL if the process runs, and waits for its end."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay open but get no response."""
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
        """The end of the broker's stdout and stderr."""
        path = self.folder / "broker.log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else ""

    def resident_memory_kib(self) -> int:
        return resident_memory_kib(self.pid)

    def cpu_s(self) -> float:
        """Processor time used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def run_ottla_broker(
    *, folder: Path | None = None, start: bool = True, test_settings: bool = True, **settings: object
) -> Iterator[BrokerProcess]:
    """Runs one Ottla broker on a free port.

    `folder` holds data and process log (default: a temporary one). With `start=False` the caller
    can prepare `log_dir` first. With `test_settings=False` the broker has its own defaults.
    """
    base = {key: value for key, value in TEST_SETTINGS.items() if test_settings}
    with _run_broker("ottla", folder, start, base | _to_kafka_names(settings), ottla_command, " ready on ") as broker:
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
    """Runs one Apache Kafka broker in KRaft combined mode; parameters as in `run_ottla_broker`.

    With `test_settings=False` its JVM has the heap that Kafka's start script sets. Of the test
    settings it then has only the replication factors and minimum ISRs for a single broker.
    """
    base = (
        TEST_SETTINGS
        if test_settings
        else {key: value for key, value in TEST_SETTINGS.items() if key.endswith((".replication.factor", ".min.isr"))}
    )
    command = partial(kafka_command, jvm=() if test_settings else KAFKA_DEFAULT_HEAP, version=version)
    with _run_broker("kafka", folder, start, base | _to_kafka_names(settings), command, KAFKA_READY_LINE) as broker:
        yield broker


BROKERS = {"ottla": run_ottla_broker, "kafka": run_apache_kafka}


@contextmanager
def _run_broker(
    kind: str,
    folder: Path | None,
    start: bool,
    settings: dict[str, str],
    command: Callable[[BrokerProcess], Sequence[str]],
    ready_line: str,
) -> Iterator[BrokerProcess]:
    home = folder or Path(tempfile.mkdtemp(prefix=f"ottla-test-{kind}-"))
    log_dir = home / "data"
    log_dir.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(kind, free_port(), log_dir, home, dict(settings), command, ready_line)
    started_brokers.append(broker)
    try:
        if start:
            broker.start()
        yield broker
    finally:
        broker.kill()
        broker.settings.clear()
        started_brokers.remove(broker)
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


def add_listeners(
    broker: BrokerProcess, protocols: Mapping[str, str], *, controller_protocol: str = "PLAINTEXT"
) -> dict[str, int]:
    """Sets the listeners of a broker that is not running: PLAINTEXT at its own port, and those of
    `protocols` (listener name → security protocol) at free ports. Apache Kafka also gets the
    listener CONTROLLER. Returns the ports by listener name.
    """
    ports = {"PLAINTEXT": broker.port} | {name: free_port() for name in protocols}
    protocol_of = {"PLAINTEXT": "PLAINTEXT", **protocols}
    if broker.kind == "kafka":
        ports["CONTROLLER"], protocol_of["CONTROLLER"] = free_port(), controller_protocol
        _controller_port_file(broker).write_text(str(ports["CONTROLLER"]))
    broker.settings |= {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocol_of.items()),
    }
    return ports


def _controller_port_file(broker: BrokerProcess) -> Path:
    """Holds the port of Apache Kafka's controller, which a restart keeps."""
    return broker.folder / "controller.port"


def broker_environment() -> dict[str, str]:
    """This process's environment, with byte code caching on. First on PYTHONPATH is the folder of
    the package `ottla_broker` that this process imports: the checkout's source or the compiled one.
    """
    package = str(Path(ottla_broker.__file__ or "").parent.parent)
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}


def _to_kafka_names(settings: Mapping[str, object]) -> dict[str, str]:
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
    """The command line of Apache Kafka. Writes its server.properties, and formats the log directory
    if it is not formatted. `jvm` replaces the options for a short-lived JVM.
    """
    controller = _controller_port_file(broker)
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
        format_log_dir(broker.log_dir, settings["node.id"], version)
    return java_command(
        kafka_classpath(version),
        "kafka.Kafka",
        str(properties),
        jvm=jvm or short_lived_jvm_options(version),
        options=LOG_READY_LINE,
    )
