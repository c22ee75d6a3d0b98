"""The settings of each worker, derived from those of the command. Pure.

Worker i of N has node.id + i, each port + i, and the directory `worker.ID` below each of log.dirs.
With `http.listener`, its port serves all workers together and the ports after it one worker each.
Worker 0 founds a cluster if none of log.dirs has a worker's directory. With
`controller.quorum.bootstrap.servers` the workers join the cluster that it names, or worker 0 founds
one where `cluster.found` allows it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_broker.config import (
    ADVERTISED_LISTENERS,
    CLUSTER_FOUND,
    CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
    HTTP_LISTENER,
    HTTP_SECURITY_LISTENER,
    LISTENERS,
    LOG_DIRS,
    NODE_ID,
    SCHEMA_REGISTRY_LISTENER,
    Config,
    HttpAddress,
    Listener,
    SettingError,
)
from ottla_broker.config.addresses import EVERY_INTERFACE, MAX_PORT, format_host_and_port

DIRECTORY_PREFIX: Final = "worker."
LOOPBACK: Final = "127.0.0.1"
META_PROPERTIES: Final = "meta.properties"


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """`overrides`: settings as `key=value`, over those of the command. `address`: of its
    inter-broker listener. `http`: where it serves its own metrics; None without `http.listener`.
    """

    node_id: int
    overrides: tuple[str, ...]
    address: str
    http: HttpAddress | None


def plan_workers(config: Config, worker_count: int, existing: Mapping[str, Collection[str]]) -> tuple[WorkerPlan, ...]:
    """`existing`: names of the files in each of log.dirs. Raises SettingError with every problem
    that keeps the workers from starting side by side.
    """
    problems = [*_find_port_problems(config, worker_count), *_find_directory_problems(config, worker_count, existing)]
    if (listener := config(HTTP_SECURITY_LISTENER)) is not None:
        problems.append(
            f"{HTTP_SECURITY_LISTENER.name}={listener}: --workers serves HTTP without TLS; allowed: not set"
        )
    if problems:
        raise SettingError(problems)
    own_addresses = [_inter_broker_address(config, index) for index in range(worker_count)]
    given_addresses = [format_host_and_port(*server) for server in config.quorum_bootstrap_servers]
    servers = ",".join(dict.fromkeys([*given_addresses, *own_addresses]))
    is_new = not any(name.startswith(DIRECTORY_PREFIX) for names in existing.values() for name in names)
    founds = config(CLUSTER_FOUND) if given_addresses else is_new
    return tuple(_plan_worker(config, index, servers, founds=founds and index == 0) for index in range(worker_count))


def _plan_worker(config: Config, index: int, servers: str, *, founds: bool) -> WorkerPlan:
    node_id = config.node_id + index
    http = config(HTTP_LISTENER)
    own_http = http._replace(port=http.port + 1 + index) if http is not None else None
    registry = config(SCHEMA_REGISTRY_LISTENER)
    settings = {
        NODE_ID.name: str(node_id),
        LOG_DIRS.name: ",".join(f"{it}/{DIRECTORY_PREFIX}{node_id}" for it in config.log_dirs),
        LISTENERS.name: _format_listeners(config.listeners, index),
        ADVERTISED_LISTENERS.name: _format_listeners(config(ADVERTISED_LISTENERS), index),
        HTTP_LISTENER.name: str(own_http) if own_http else "",
        SCHEMA_REGISTRY_LISTENER.name: str(registry._replace(port=registry.port + index)) if registry else "",
        CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name: servers,
        CLUSTER_FOUND.name: "true" if founds else "false",
    }
    overrides = tuple(f"{name}={text}" for name, text in settings.items() if text)
    return WorkerPlan(node_id, overrides, _inter_broker_address(config, index), own_http)


def _format_listeners(listeners: Collection[Listener], index: int) -> str:
    """The listeners of worker `index`, as text of a setting."""
    return ",".join(str(it._replace(port=it.port + index)) for it in listeners)


def _inter_broker_address(config: Config, index: int) -> str:
    """host:port at which workers reach each other."""
    (listener,) = (it for it in config.advertised_listeners if it.name == config.inter_broker_listener)
    host = LOOPBACK if listener.host in EVERY_INTERFACE else listener.host
    return format_host_and_port(host, listener.port + index)


def _find_port_problems(config: Config, worker_count: int) -> list[str]:
    """`--workers` takes a range of ports for each address; no two ranges may share a port."""
    port_ranges = {f"{LISTENERS.name}={it}": (it.port, worker_count) for it in config.listeners}
    for setting, count in ((HTTP_LISTENER, worker_count + 1), (SCHEMA_REGISTRY_LISTENER, worker_count)):
        if (address := config(setting)) is not None:
            port_ranges[f"{setting.name}={address}"] = (address.port, count)
    problems: list[str] = []
    taken: dict[int, str] = {}
    for name, (first, count) in port_ranges.items():
        if first == 0 or first + count - 1 > MAX_PORT:
            allowed = f"a port from 1 to {MAX_PORT - count + 1}"
            problems.append(f"{name}: --workers {worker_count} takes {count} ports from this one; allowed: {allowed}")
            continue
        ports = range(first, first + count)
        if (shared := next((port for port in ports if port in taken), None)) is not None:
            problems.append(
                f"{name}: --workers {worker_count} takes ports {first} to {ports[-1]}, of which {taken[shared]} takes "
                f"{shared}; leave room for {count} ports after each address"
            )
        taken.update(dict.fromkeys(ports, name))
    return problems


def _find_directory_problems(config: Config, worker_count: int, existing: Mapping[str, Collection[str]]) -> list[str]:
    ids = range(config.node_id, config.node_id + worker_count)
    problems = []
    for path in config.log_dirs:
        names = existing.get(path, ())
        if META_PROPERTIES in names:
            problems.append(
                f"{LOG_DIRS.name}={path}: this directory is a broker's own, started without --workers; each worker "
                f"needs one below it, such as {path}/{DIRECTORY_PREFIX}{ids[0]}"
            )
        started = {f"{DIRECTORY_PREFIX}{it}" for it in ids}
        for name in sorted(it for it in names if it.startswith(DIRECTORY_PREFIX) and it not in started):
            problems.append(
                f"{LOG_DIRS.name}={path}: no worker would use {path}/{name}: --workers {worker_count} starts brokers "
                f"{ids[0]} to {ids[-1]}. Start as many as before, or drain and unregister the broker and remove its "
                "directory"
            )
    return problems
