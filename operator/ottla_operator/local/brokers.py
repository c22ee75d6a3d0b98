"""The brokers of one Cluster as processes: started, observed and reported. `plan.broker_processes`
chooses their ids and ports.
"""

import asyncio
import datetime
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ottla_operator.local import processes
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home, read_state, replace_file, write_state
from ottla_operator.local.live_view import BrokerRow, LiveView, State
from ottla_operator.local.login_files import write_login
from ottla_operator.local.registry_ports import claim_port
from ottla_operator.local.supervisor import ProcessStatus, Supervisor
from ottla_operator.plan.broker_processes import (
    CONSOLE_WRITE,
    HOST,
    INTER_BROKER,
    KEYSTORE_LOCATION,
    REGISTRY_LISTENER,
    BrokerProcessPlan,
    inter_broker_address,
    with_founding,
    with_optional_login,
    with_replication_defaults,
)
from ottla_operator.plan.cluster_status import ObservedBroker
from ottla_operator.plan.console import ENABLE_SETTING
from ottla_operator.plan.inter_broker_login import (
    InterBrokerLogin,
    observed_login,
    operator_security,
    plan_login,
)
from ottla_operator.plan.listener_certificates import AUTHORITIES
from ottla_operator.plan.password_rotation import LoginSecret
from ottla_operator.plan.restart import describe_restart, due_restart
from ottla_operator.plan.settings import Settings, broker_count_for_defaults, without_rejected
from ottla_operator.reconcile.platform import BrokerAccess, ReconcileState
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_tls import CertificateStatus

RESTART_FILE: Final = "restart-at"
CONSOLE_FILE: Final = "console"
REGISTRY_FILE: Final = "registry"


class BrokerProcess:
    """One broker's process. `plan`: settings and ports of its next start. `started_with`: settings
    of the current or last process; before the first process, those of the first plan; None if those
    of an adopted process are unknown. `restart_at`: the last `restartAt` that has passed;
    `started_after`: the one that the process was started after. `console`, `registry`: host:port
    where the running process serves them; empty without one. `on_status`: called with every change.
    """

    def __init__(self, plan: BrokerProcessPlan, folder: Path, on_status: Callable[[ProcessStatus], None]) -> None:
        self.plan = plan
        self.folder = folder
        self.started_with: Settings | None = plan.settings
        self.restart_at = self.started_after = self.console = self.registry = ""
        self.unready_since_s = asyncio.get_running_loop().time()
        self._was_ready = False
        self._on_status = on_status
        if processes.find_process(folder) is not None:
            self.started_with = self._read_settings()
            self.started_after = self._read_text(RESTART_FILE)
            self.console = self._read_text(CONSOLE_FILE)
            self.registry = self._read_text(REGISTRY_FILE)
        self.supervisor = self._create_supervisor()

    @property
    def is_ready(self) -> bool:
        return self.supervisor.ready.is_set()

    @property
    def address(self) -> str:
        """host:port by which `ottla up` reaches the running process, whose listener may differ from
        the plan's.
        """
        return inter_broker_address(self.started_with or {}) or self.plan.address

    async def restart(self) -> None:
        """Returns when the old process has exited and the new one is starting."""
        await self.supervisor.stop()
        self.supervisor = self._create_supervisor()
        self.supervisor.start()

    def update(self, plan: BrokerProcessPlan) -> None:
        """Sets what the process is started with next, and restarts nothing."""
        self.plan = plan
        self.supervisor.command = broker_command(plan, self.console, self.registry)

    def _create_supervisor(self) -> Supervisor:
        return Supervisor(
            folder=self.folder,
            command=broker_command(self.plan, self.console, self.registry),
            hash=None,  # any process is adopted: brokers are restarted one at a time, not by a new `ottla up`
            on_status=self._update_status,
            is_ready=lambda output: " ready on " in output,
            find_obstacle=self._find_port_conflict,
            before_start=self._prepare_start,
        )

    def _update_status(self, status: ProcessStatus) -> None:
        if self._was_ready and status.state is not State.ready:
            self.unready_since_s = asyncio.get_running_loop().time()
        self._was_ready = status.state is State.ready
        self._on_status(status)

    def _find_port_conflict(self) -> str | None:
        return next((it for port in self.plan.ports.values() if (it := processes.find_port_conflict(port))), None)

    def _prepare_start(self) -> None:
        self.console = find_console_address(self.plan)
        replace_file(self.folder / CONSOLE_FILE, self.console)
        self.registry = find_registry_address(self.plan)
        replace_file(self.folder / REGISTRY_FILE, self.registry)
        self.supervisor.command = broker_command(self.plan, self.console, self.registry)
        self._write_settings()

    def _write_settings(self) -> None:
        self.started_with = dict(self.plan.settings)
        replace_file(self.folder / "settings.json", json.dumps(self.started_with, indent=2))
        self.started_after = self.restart_at
        replace_file(self.folder / RESTART_FILE, self.started_after)

    def _read_text(self, file: str) -> str:
        try:
            return (self.folder / file).read_text()
        except FileNotFoundError:
            return ""

    def _read_settings(self) -> Settings | None:
        try:
            found = json.loads((self.folder / "settings.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None


@dataclass(slots=True)
class BrokerProcesses:
    """See `reconcile.platform.BrokerSet`. `document`: the Cluster as written. `plans`: plans of
    every desired broker and of those that still run. `login`: passwords of brokers and of
    `ottla up`; None if brokers never had a login. `by_id`: in ascending order. `on_change`: called
    when a broker becomes ready, stops being ready or fails.
    """

    name: str
    home: Home
    view: LiveView
    on_change: Callable[[], None]
    document: Document
    plans: Sequence[BrokerProcessPlan]
    login: LoginSecret | None = None
    by_id: dict[int, BrokerProcess] = field(default_factory=dict)
    count: int = 0
    state: ReconcileState = field(default_factory=ReconcileState)
    desired: dict[int, Settings] = field(default_factory=dict)
    selector: str = ""
    certificate: CertificateStatus | None = None
    certificate_error: str = ""
    creation_error: str = ""
    _console: str = ""
    _registry: str = ""
    """The printed addresses of a console and a registry; others are printed when these are no
    longer served."""
    _reported: dict[str, str] = field(default_factory=dict)
    """Broker → the reason that was reported last, so that it is reported once."""

    def prepare(self, cluster: Cluster, rejected: Settings) -> "BrokerProcesses":
        """Starts missing brokers. Those that run are started with the new settings next time."""
        self.count, self.state = read_state(self.home.cluster(self.name))
        if self.count < cluster.spec.replicas:
            self.count = cluster.spec.replicas
            write_state(self.home.cluster(self.name), self.count, self.state)
        is_optional = plan_login(cluster, self._running_logins()) is InterBrokerLogin.OPTIONAL
        defaults_for = broker_count_for_defaults(self.count, self.state.spread_over)
        for plan in self.plans[: self.count]:
            plan = with_replication_defaults(plan, cluster, defaults_for)
            plan = with_founding(plan) if self.state.is_founding else plan
            plan = with_optional_login(plan, cluster) if is_optional and self.login is not None else plan
            self._update(plan, rejected, due_restart(cluster, datetime.datetime.now(datetime.UTC)))
        self.desired = {id_: it.plan.settings for id_, it in self.by_id.items() if id_ <= cluster.spec.replicas}
        return self

    def _update(self, plan: BrokerProcessPlan, rejected: Settings, restart_at: str) -> None:
        if (broker := self.by_id.get(plan.id)) is None:
            row = self.view.brokers[plan.label] = BrokerRow(plan.label, plan.address)
            folder = self.home.broker(plan.cluster, plan.id)
            broker = self.by_id[plan.id] = BrokerProcess(plan, folder, lambda status: self._report(row, status))
            broker.supervisor.start()
        broker.restart_at = restart_at
        settings = without_rejected(plan.settings, rejected, broker.started_with)
        broker.update(replace(plan, settings=settings))
        self.view.brokers[plan.label].address = plan.address

    @property
    def brokers(self) -> Mapping[int, ObservedBroker]:
        now = asyncio.get_running_loop().time()
        return {
            id_: ObservedBroker(
                id_,
                it.is_ready,
                it.started_with,
                outdated=describe_restart(it.restart_at, it.started_after),
                unready_for_s=0.0 if it.is_ready else now - it.unready_since_s,
                problem=it.supervisor.status.reason,
            )
            for id_, it in self.by_id.items()
        }

    @property
    def access(self) -> BrokerAccess:
        """Addresses and security to reach the ready brokers. The process of another `ottla up` may
        have the port of a broker that is not ready.
        """
        addresses = [it.address for it in self.by_id.values() if it.is_ready]
        return BrokerAccess(
            addresses, operator_security(self.login.in_use if self.login else None, self._running_logins())
        )

    @property
    def registry_addresses(self) -> list[str]:
        """host:port of the schema registries of ready brokers."""
        return [it.registry for _, it in sorted(self.by_id.items()) if it.is_ready and it.registry]

    def registry_url(self, cluster: Cluster) -> str:
        """URL of the schema registry of the first ready broker; empty without one."""
        address = next(iter(self.registry_addresses), "")
        return f"{'https' if cluster.registry_has_tls else 'http'}://{address}" if address else ""

    def read_authorities(self) -> str:
        """Certificates of the authorities of the listeners, as PEM; empty if there is no such file,
        and clients then trust the system's authorities.
        """
        keystore = next((it.settings.get(KEYSTORE_LOCATION, "") for it in self.plans), "")
        path = Path(keystore).with_name(AUTHORITIES)
        return path.read_text() if keystore and path.exists() else ""

    def _running_logins(self) -> list[InterBrokerLogin]:
        """The inter-broker logins of the brokers whose processes run."""
        running = [it for it in self.by_id.values() if it.supervisor.status.pid is not None]
        return [observed_login(it.started_with or {}) for it in running]

    @property
    def replica_addresses(self) -> list[str]:
        return [it.address for it in self.by_id.values() if it.supervisor.status.pid is not None]

    @property
    def bootstrap(self) -> dict[str, str]:
        plans = [it for it in self.plans if it.id <= self.document.data["spec"]["replicas"]]
        names = [it for it in plans[0].ports if it != INTER_BROKER] if plans else []
        return {name: ",".join(f"{HOST}:{it.ports[name]}" for it in plans) for name in names}

    @property
    def bootstrap_addresses(self) -> list[str]:
        """Addresses of all desired brokers."""
        return [it.address for it in self.plans if it.id <= self.document.data["spec"]["replicas"]]

    async def restart(self, broker: int) -> None:
        await self.by_id[broker].restart()

    async def save(self, count: int, state: ReconcileState) -> None:
        for id_ in [it for it in self.by_id if it > count]:
            await self.by_id[id_].supervisor.stop()
            del self.view.brokers[self.by_id.pop(id_).plan.label]
        write_state(self.home.cluster(self.name), count, state)

    async def save_login(self, login: LoginSecret) -> None:
        write_login(self.home.login(self.name), login)
        self.login = login

    async def finish(self, *, can_spare_a_broker: bool) -> None:
        """Does nothing: the folder of a removed broker is kept."""

    async def stop(self) -> bool:
        """Stops all brokers. False if some had to be killed."""
        return all(await asyncio.gather(*(it.supervisor.stop() for it in self.by_id.values())))

    def kill(self) -> None:
        for broker in self.by_id.values():
            broker.supervisor.kill()

    def _report(self, row: BrokerRow, status: ProcessStatus) -> None:
        if status.state is State.ready:
            if status.is_adopted:
                self.view.say(f"broker {row.label} was still running (pid {status.pid}): adopted", "info")
            if self._reported.pop(row.label, ""):
                self.view.say(f"broker {row.label} is ready again", "success")
        elif status.state in (State.retrying, State.failed) and status.reason != self._reported.get(row.label):
            self._reported[row.label] = status.reason
            self.view.say(f"broker {row.label}: {self._with_location(status.note)}", "error")
        was_ready = row.state is State.ready
        row.state, row.note, row.pid = status.state, status.note, status.pid
        if status.state is State.ready:
            self.view.reach("first broker ready")
            self._report_console()
            self._report_registry()
            if len(self.desired) > 1 and all(self.by_id[it].is_ready for it in self.desired):
                self.view.reach(f"{len(self.desired)} brokers ready")
        if was_ready != (status.state is State.ready) or status.state is State.failed:
            self.on_change()

    def _report_console(self) -> None:
        consoles = (it.console for _, it in sorted(self.by_id.items()) if it.is_ready and it.console)
        console = next(consoles, "")
        if console not in ("", self._console) and not self._is_console_served():
            self._console = console
            self.view.say(f"console of cluster {self.name}: http://{console}", "info")

    def _report_registry(self) -> None:
        """Prints the address of a registry, unless the one printed last is still served."""
        addresses = self.registry_addresses
        if addresses and self._registry not in addresses:
            self._registry = addresses[0]
            self.view.say(f"schema registry of cluster {self.name}: {self._registry}", "info")

    def _is_console_served(self) -> bool:
        return any(it.is_ready and it.console == self._console for it in self.by_id.values())

    def _with_location(self, message: str) -> str:
        """Adds file and line of the setting or port that a broker's message is about."""
        if (setting := self.document.find_setting(message)) is not None:
            return f"{message} (spec.config in {self.document.locate(setting)})"
        if message.startswith("port ") and "listeners" in self.document.data["spec"]:
            return f"{message} (spec.listeners in {self.document.locate(('spec', 'listeners'))})"
        return message


def broker_command(plan: BrokerProcessPlan, console: str, registry: str) -> Sequence[str]:
    settings = dict(plan.settings)
    if registry:
        settings[REGISTRY_LISTENER] = registry
    if console:
        settings = {CONSOLE_WRITE: "everyone"} | settings | {ENABLE_SETTING: "true", "http.listener": console}
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "ottla_broker", *options]


def find_console_address(plan: BrokerProcessPlan) -> str:
    """host:port of the console: the planned port, or another free one if a program listens on it.
    Empty if the broker serves no console.
    """
    if plan.console_port is None:
        return ""
    is_free = processes.find_port_conflict(plan.console_port) is None
    return f"{HOST}:{plan.console_port if is_free else processes.find_free_port()}"


def find_registry_address(plan: BrokerProcessPlan) -> str:
    """host:port of the registry. Claims the planned port for this `ottla up`; another free port if
    a program listens on it or another `ottla up` has claimed it. Without a planned port, the
    address in the settings; empty if there is none.
    """
    if plan.registry_port is None:
        return plan.settings.get(REGISTRY_LISTENER, "")
    return f"{HOST}:{claim_port(plan.registry_port)}"
