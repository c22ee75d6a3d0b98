"""Types of settings that hold addresses: listeners and their protocols, bootstrap servers, limits
per IP address, URLs.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla_broker.config.value_types import ConfigType, ValueType, parsed, split_list
from ottla_broker.wire.client_security import PROTOCOLS

MAX_PORT = 65535
EVERY_INTERFACE = frozenset({"", "0.0.0.0", "::"})


class Listener(NamedTuple):
    """`NAME://host:port`. Host "" means every interface, port 0 any free port. IPv6 hosts have no
    brackets here.
    """

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{format_host_and_port(self.host, self.port)}"


class HttpAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return format_host_and_port(self.host, self.port)


def format_host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host_and_port(text: str) -> tuple[str, int]:
    """`host:port`, `:port` or `[v6]:port`; ValueError otherwise."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > MAX_PORT:
        raise ValueError(f"{text!r} has no port from 0 to {MAX_PORT} after a colon")
    if host.startswith("[") and host.endswith("]"):
        from ipaddress import IPv6Address  # only where it is needed: it would be a third of this package's import time

        host = str(IPv6Address(host[1:-1]))
    elif ":" in host:
        raise ValueError(f"{text!r} has an IPv6 address without brackets")
    if any(character.isspace() or character in "/@,[]" for character in host):
        raise ValueError(f"{host!r} is no host name")
    return host, int(port)


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Listeners with names in upper case. Raises ValueError for a malformed one, a name that is
    used twice, and none.
    """
    found: list[Listener] = []
    for entry in split_list(text):
        name, separator, address = entry.partition("://")
        if not separator or not name or not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
            raise ValueError(f"{entry!r} does not start with a listener's name and ://")
        found.append(Listener(name.upper(), *parse_host_and_port(address)))
    if not found:
        raise ValueError
    for listener in found:
        if sum(other.name == listener.name for other in found) > 1:
            raise ValueError(f"two listeners are named {listener.name}")
    return tuple(found)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Security protocol by listener name, from `NAME:PROTOCOL` pairs. Raises ValueError."""
    found: dict[str, str] = {}
    for entry in split_list(text):
        name, colon, protocol = (part.strip() for part in entry.partition(":"))
        if not (colon and name) or protocol.upper() not in PROTOCOLS:
            raise ValueError(f"{entry!r} is no NAME:PROTOCOL pair")
        if name.upper() in found:
            raise ValueError(f"{name.upper()} is named twice")
        found[name.upper()] = protocol.upper()
    return found


def parse_limits(text: str) -> dict[str, int]:
    """Limit by host, from `HOST:LIMIT` pairs. A host is an IP address, here without brackets, or a
    name, which is not resolved. Raises ValueError.
    """
    found: dict[str, int] = {}
    for entry in split_list(text):
        host, colon, limit = entry.rpartition(":")
        if not (colon and host) or not (limit.strip().isascii() and limit.strip().isdigit()):
            raise ValueError(f"{entry!r} is no address:number pair")
        found[host.strip().strip("[]")] = int(limit)
    return found


def listeners() -> ValueType[tuple[Listener, ...]]:
    return parsed(parse_listeners, "NAME://host:port, several separated by commas, each name once")


def protocol_map() -> ValueType[dict[str, str]]:
    return parsed(
        parse_protocol_map,
        f"NAME:PROTOCOL pairs separated by commas, PROTOCOL one of {', '.join(PROTOCOLS)}",
        _join_pairs,
    )


def limits_by_address() -> ValueType[dict[str, int]]:
    return parsed(parse_limits, "address:number pairs separated by commas", _join_pairs)


def http_address() -> ValueType[HttpAddress]:
    return parsed(lambda text: HttpAddress(*parse_host_and_port(text.strip())), "host:port", str)


def host_and_port_list() -> ValueType[tuple[tuple[str, int], ...]]:
    return parsed(
        lambda text: tuple(parse_host_and_port(entry) for entry in split_list(text)),
        "host:port, several separated by commas",
        _join_hosts_and_ports,
        code=ConfigType.LIST,
    )


def parse_http_url(text: str) -> str:
    """A URL with a host and without query and fragment. Raises ValueError for any other text."""
    url = text.strip()
    parts = urlsplit(url)
    if not url.startswith(("https://", "http://")) or not parts.hostname or any(it in url for it in "?# "):
        raise ValueError
    _ = parts.port  # raises ValueError
    return url


def http_url() -> ValueType[str]:
    return parsed(parse_http_url, "a URL with https:// or http://, without query and fragment")


def _join_pairs(value: object) -> str:
    assert isinstance(value, dict)
    pairs: Iterable[tuple[str, object]] = value.items()
    return ",".join(f"{name}:{member}" for name, member in pairs)


def _join_hosts_and_ports(value: object) -> str:
    assert isinstance(value, tuple)
    return ",".join(format_host_and_port(*address) for address in value)
