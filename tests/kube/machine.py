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

GROUPS = Path("/sys/fs/cgroup")
PREFIX = "ottla-kube-"
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
# Folders that a node writes to. A tmpfs hides the real ones.
HIDDEN = ("/run", "/var/log", "/var/lib")


class Machine:
    """A running machine. `name` is unique among the machines of this process.

    `power_off` kills all its processes; `remove` also deletes its control group.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.group = f"/{PREFIX}{os.getpid()}/{name}"
        make_group(f"/{PREFIX}{os.getpid()}")
        make_group(self.group)
        make_group(f"{self.group}/daemons")
        hide = "; ".join(f"mount -t tmpfs tmpfs {place}" for place in HIDDEN)
        script = f"{hide}; mkdir /run/netns /run/containerd /run/lock /var/log/containers; echo up; exec sleep infinity"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-euc", script],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", f"machine {name} did not come up"
        join_group(self.group, self._holder.pid)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        """Id of a process in the machine's namespaces."""
        return self._holder.pid

    def inside(self, *command: str | Path) -> list[str]:
        """The command line that runs `command` on the machine. It ends in exec, so signals reach
        `command` itself.
        """
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--", *map(str, command)]

    def run(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> str:
        """Run a command and return its standard output. Raises AssertionError with its output when
        it fails.
        """
        env = os.environ | dict(environment or {})
        done = subprocess.run(
            self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}"
        return done.stdout

    def daemon(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Daemon:
        """A daemon that will run on the machine, in its control group."""
        # The shell moves itself into the control group first; the daemon and its children inherit
        # it.
        joins = "; ".join(f"echo $$ > {place}/cgroup.procs" for place in places_of(f"{self.group}/daemons"))
        started = ["sh", "-c", f'{joins}; exec "$@"', "sh", *self.inside(*command)]
        return Daemon(started, log, environment or {})

    def processes(self) -> dict[int, str]:
        """Command lines of all processes by process id, including those in containers."""
        found: dict[int, str] = {}
        for pid in _members(self.group):
            with suppress(FileNotFoundError, ProcessLookupError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread, and processes that it starts, into the machine's network namespace."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(network: int) -> None:
            if libc.setns(network, NEW_NETWORK) != 0:
                raise OSError(ctypes.get_errno(), "setns")

        with open("/proc/self/ns/net") as before, open(f"/proc/{self.pid}/ns/net") as there:  # noqa: PTH123
            enter(there.fileno())
            try:
                yield
            finally:
                enter(before.fileno())

    def off(self) -> None:
        """Send SIGKILL to all processes of the machine."""
        kill_group(self.group)
        self._holder.wait()

    def remove(self) -> None:
        self.off()
        remove_group(self.group)
        with suppress(OSError):  # other machines are still in it
            remove_group(f"/{PREFIX}{os.getpid()}")


def link(one: Machine, other: Machine, name: str, *, bridge: str, address: str) -> None:
    """Connect `other` to the network bridge `bridge` of `one` by a veth pair.

    The end in `other` is eth0 with `address` (CIDR); the end in `one` is called `name`.
    """
    one.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(other.pid))
    one.run("ip", "link", "set", name, "master", bridge, "up")
    other.run("ip", "addr", "add", address, "dev", "eth0")
    other.run("ip", "link", "set", "eth0", "up")


def clear_left_over() -> None:
    """Kill and remove the machines of test processes that no longer exist."""
    for place in _hierarchies()[0].glob(f"{PREFIX}*"):
        if not Path(f"/proc/{place.name.removeprefix(PREFIX)}").exists():
            kill_group(f"/{place.name}")
            remove_group(f"/{place.name}")


def _hierarchies() -> list[Path]:
    """Mount points of the cgroup hierarchies: one in version 2, several in version 1."""
    if (GROUPS / "cgroup.controllers").exists():
        return [GROUPS]
    return sorted(place for place in GROUPS.iterdir() if (place / "cgroup.procs").exists())


def places_of(group: str) -> list[Path]:
    return [place / group.lstrip("/") for place in _hierarchies()]


def make_group(group: str) -> None:
    for place in places_of(group):
        place.mkdir(exist_ok=True)
        if (place / "cpuset.cpus").exists() and not (place / "cgroup.controllers").exists():
            for name in ("cpuset.cpus", "cpuset.mems"):  # of version 1: children start with none
                (place / name).write_text((place.parent / name).read_text())
        if (place / "cgroup.controllers").exists() and "daemons" not in group:
            controllers = (place.parent / "cgroup.subtree_control").read_text().split()
            with suppress(OSError):  # a group with processes gives nothing on
                (place / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def join_group(group: str, pid: int) -> None:
    for place in places_of(group):
        (place / "cgroup.procs").write_text(str(pid))


def _members(group: str) -> list[int]:
    found: list[int] = []
    for place in places_of(group)[:1] if len(_hierarchies()) == 1 else places_of(group):
        for file in [*place.rglob("cgroup.procs"), place / "cgroup.procs"]:
            with suppress(FileNotFoundError):
                found += map(int, file.read_text().split())
    return found


def kill_group(group: str) -> None:
    def gone() -> bool:
        members = _members(group)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not members

    eventually(gone, within_s=30, message=f"everything in {group} has ended")


def remove_group(group: str) -> None:
    for place in places_of(group):
        for inner in sorted(place.rglob("*/"), reverse=True):
            if inner.is_dir():
                inner.rmdir()
        if place.exists():
            place.rmdir()
