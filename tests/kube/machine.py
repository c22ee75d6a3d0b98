"""A virtual machine without virtualisation: network and mount namespaces, held open by a sleeping
process, and a control group for all its processes.

Nothing outlives the test: namespaces end with their last process. What a killed test left running
is found by its control group and killed by the next test (`remove_leftover_machines`).
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.daemons import Daemon
from tests.waiting import eventually

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "ottla-kube-"
CLONE_NEWNET = 0x40000000  # from linux/sched.h
# Folders that a node writes to. A tmpfs hides the real ones.
HIDDEN_FOLDERS = ("/run", "/var/log", "/var/lib")


class Machine:
    """A running machine. `name` is unique among the machines of this process.

    `power_off` kills all its processes; `remove` also deletes its control group.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cgroup = f"/{CGROUP_PREFIX}{os.getpid()}/{name}"
        create_cgroup(f"/{CGROUP_PREFIX}{os.getpid()}")
        create_cgroup(self.cgroup)
        create_cgroup(f"{self.cgroup}/daemons")
        mounts = "; ".join(f"mount -t tmpfs tmpfs {folder}" for folder in HIDDEN_FOLDERS)
        script = (
            f"{mounts}; mkdir /run/netns /run/containerd /run/lock /var/log/containers; echo up; exec sleep infinity"
        )
        self._namespace_process = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-euc", script],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._namespace_process.stdout is not None
        assert self._namespace_process.stdout.readline() == b"up\n", f"machine {name} did not start"
        add_to_cgroup(self.cgroup, self._namespace_process.pid)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        """Id of a process in the machine's namespaces."""
        return self._namespace_process.pid

    def nsenter_command(self, *command: str | Path) -> list[str]:
        """The command line that runs `command` on the machine. It ends in exec, so signals reach
        `command` itself.
        """
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--", *map(str, command)]

    def run(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> str:
        """Runs a command and returns its standard output. Raises AssertionError with its output
        when it fails.
        """
        env = os.environ | dict(environment or {})
        done = subprocess.run(
            self.nsenter_command(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}"
        return done.stdout

    def create_daemon(
        self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> Daemon:
        """A daemon that will run on the machine, in its control group."""
        # The shell moves itself into the control group, and the daemon and its children inherit it.
        joins = "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in cgroup_folders(f"{self.cgroup}/daemons"))
        wrapped = ["sh", "-c", f'{joins}; exec "$@"', "sh", *self.nsenter_command(*command)]
        return Daemon(wrapped, log, environment or {})

    def adopt(self, daemon: Daemon) -> None:
        """Moves a running daemon into the machine's control group, so that it ends with the
        machine.
        """
        assert daemon.process is not None
        add_to_cgroup(f"{self.cgroup}/daemons", daemon.process.pid)

    def list_processes(self) -> dict[int, str]:
        """Command lines of all processes by process id, including those in containers."""
        command_lines: dict[int, str] = {}
        for pid in _list_cgroup_processes(self.cgroup):
            with suppress(FileNotFoundError, ProcessLookupError):
                command_lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return command_lines

    @contextmanager
    def enter_network(self) -> Iterator[None]:
        """Moves this thread, and processes that it starts, into the machine's network namespace."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(network: int) -> None:
            if libc.setns(network, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

        with open("/proc/self/ns/net") as before, open(f"/proc/{self.pid}/ns/net") as inside:  # noqa: PTH123
            enter(inside.fileno())
            try:
                yield
            finally:
                enter(before.fileno())

    def power_off(self) -> None:
        """Sends SIGKILL to all processes of the machine."""
        kill_cgroup(self.cgroup)
        self._namespace_process.wait()

    def remove(self) -> None:
        self.power_off()
        remove_cgroup(self.cgroup)
        with suppress(OSError):  # it still has other machines
            remove_cgroup(f"/{CGROUP_PREFIX}{os.getpid()}")


def connect_machines(one: Machine, other: Machine, name: str, *, bridge: str, address: str) -> None:
    """Connects `other` to the network bridge `bridge` of `one` by a veth pair.

    The end in `other` is eth0 with `address` (CIDR); the end in `one` is called `name`.
    """
    one.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(other.pid))
    one.run("ip", "link", "set", name, "master", bridge, "up")
    other.run("ip", "addr", "add", address, "dev", "eth0")
    other.run("ip", "link", "set", "eth0", "up")


def remove_leftover_machines() -> None:
    """Kills and removes the machines of test processes that no longer exist."""
    for folder in _cgroup_hierarchies()[0].glob(f"{CGROUP_PREFIX}*"):
        pid = folder.name.removeprefix(CGROUP_PREFIX)
        if not Path(f"/proc/{pid}").exists():
            kill_cgroup(f"/{folder.name}")
            remove_cgroup(f"/{folder.name}")


def _cgroup_hierarchies() -> list[Path]:
    """Mount points of the cgroup hierarchies: one in version 2, several in version 1."""
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        return [CGROUP_ROOT]
    return sorted(folder for folder in CGROUP_ROOT.iterdir() if (folder / "cgroup.procs").exists())


def cgroup_folders(group: str) -> list[Path]:
    """Folders of a control group, one per hierarchy."""
    return [folder / group.lstrip("/") for folder in _cgroup_hierarchies()]


def create_cgroup(group: str) -> None:
    """Creates a control group. Its child groups can have the same controllers, except those of a
    `daemons` group, which contains processes itself.
    """
    for folder in cgroup_folders(group):
        folder.mkdir(exist_ok=True)
        if (folder / "cpuset.cpus").exists() and not (folder / "cgroup.controllers").exists():
            for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group of version 1
                (folder / name).write_text((folder.parent / name).read_text())
        if (folder / "cgroup.controllers").exists() and "daemons" not in group:
            controllers = (folder.parent / "cgroup.subtree_control").read_text().split()
            with suppress(OSError):  # a group with processes cannot delegate controllers
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def add_to_cgroup(group: str, pid: int) -> None:
    for folder in cgroup_folders(group):
        (folder / "cgroup.procs").write_text(str(pid))


def _list_cgroup_processes(group: str) -> list[int]:
    """Ids of the processes in a control group and its children."""
    pids: list[int] = []
    for folder in cgroup_folders(group):
        for file in [*folder.rglob("cgroup.procs"), folder / "cgroup.procs"]:
            with suppress(FileNotFoundError):
                pids += map(int, file.read_text().split())
    return pids


def kill_cgroup(group: str) -> None:
    """Sends SIGKILL to all processes of a control group until none is left."""

    def kill_remaining() -> bool:
        members = _list_cgroup_processes(group)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not members

    eventually(kill_remaining, within_s=30, message=f"all processes of {group} have ended")


def remove_cgroup(group: str) -> None:
    for folder in cgroup_folders(group):
        for child in sorted(folder.rglob("*/"), reverse=True):
            if child.is_dir():
                child.rmdir()
        if folder.exists():
            folder.rmdir()
