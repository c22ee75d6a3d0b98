"""Types of settings that hold addresses: listeners, protocols, limits per IP address, principals,
bootstrap servers.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla_broker.config.value_types import ConfigType, ValueType, parsed, split_list
from ottla_broker.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas_config
from ottla_broker.security.principal_mapping import PrincipalMapper
from ottla_broker.security.restricted_super_users import (
    ALLOWED,
    RestrictedSuperUsers,
    format_restricted_super_users,
    parse_restricted_super_users,
)
from ottla_broker.wire.client_security import SERVER_MECHANISMS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MAX_PORT = 65535
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
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
    """Listener name → security protocol."""
    found: dict[str, str] = {}
    for entry in split_list(text):
        name, colon, protocol = (part.strip() for part in entry.partition(":"))
        if not (colon and name) or protocol.upper() not in PROTOCOLS:
            raise ValueError(f"{entry!r} is not such a pair")
        if name.upper() in found:
            raise ValueError(f"{name.upper()} is named twice")
        found[name.upper()] = protocol.upper()
    return found


def parse_limits(text: str) -> dict[str, int]:
    """`address:limit` pairs; host names are kept as they are."""
    found: dict[str, int] = {}
    for entry in split_list(text):
        host, colon, limit = entry.rpartition(":")
        if not (colon and host) or not (limit.strip().isascii() and limit.strip().isdigit()):
            raise ValueError(f"{entry!r} is not such a pair")
        found[host.strip().strip("[]")] = int(limit)
    return found


def parse_http(text: str) -> HttpAddress:
    return HttpAddress(*parse_host_and_port(text.strip()))


def parse_endpoints(text: str) -> tuple[tuple[str, int], ...]:
    return tuple(parse_host_and_port(entry) for entry in split_list(text))


def parse_principals(text: str) -> tuple[str, ...]:
    """`TYPE:NAME` entries separated by semicolons, because names of certificates contain commas."""
    entries = tuple(entry.strip() for entry in text.split(";") if entry.strip())
    for entry in entries:
        kind, colon, name = entry.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{entry!r} has no type and name with a colon between them")
    return entries


def listeners() -> ValueType[tuple[Listener, ...]]:
    return parsed(parse_listeners, "NAME://host:port, several separated by commas, each name once")


def protocol_map() -> ValueType[dict[str, str]]:
    return parsed(
        parse_protocol_map, f"NAME:PROTOCOL pairs separated by commas, PROTOCOL one of {', '.join(PROTOCOLS)}", _pairs
    )


def limits_by_address() -> ValueType[dict[str, int]]:
    return parsed(parse_limits, "address:number pairs separated by commas", _pairs)


def http_address() -> ValueType[HttpAddress]:
    return parsed(parse_http, "host:port", str)


def host_and_port_list() -> ValueType[tuple[tuple[str, int], ...]]:
    return parsed(
        parse_endpoints,
        "host:port, several separated by commas",
        _endpoints_text,
        code=ConfigType.LIST,
    )


def parse_authorizer_name(text: str) -> str:
    """Kafka's StandardAuthorizer with or without its package, or nothing."""
    if text.strip() not in ("", STANDARD_AUTHORIZER.rpartition(".")[2], STANDARD_AUTHORIZER):
        raise ValueError
    return text.strip()


def authorizer_name() -> ValueType[str]:
    return parsed(parse_authorizer_name, f"{STANDARD_AUTHORIZER} or nothing")


def login_module() -> ValueType[LoginModule | None]:
    return parsed(
        parse_jaas_config,
        f'{PLAIN_MODULE} required user_NAME="PASSWORD" …; {SCRAM_MODULE} required; or {OAUTHBEARER_MODULE} required;',
        code=ConfigType.PASSWORD,
    )


def parse_jwks_url(text: str) -> str:
    scheme, separator, rest = text.strip().partition("://")
    if scheme.lower() not in ("https", "http", "file") or not separator or not rest:
        raise ValueError
    return text.strip()


def jwks_url() -> ValueType[str]:
    return parsed(parse_jwks_url, "a URL with https://, http:// or file://")


def parse_http_url(text: str) -> str:
    """Raises ValueError."""
    url = text.strip()
    parts = urlsplit(url)
    if not url.startswith(("https://", "http://")) or not parts.hostname or any(it in url for it in "?# "):
        raise ValueError
    _ = parts.port  # raises ValueError
    return url


def http_url() -> ValueType[str]:
    return parsed(parse_http_url, "a URL with https:// or http://, without query and fragment")


def parse_oidc_scope(text: str) -> str:
    if "openid" not in text.split():
        raise ValueError("without openid there is no id token")
    return " ".join(text.split())


def oidc_scope() -> ValueType[str]:
    return parsed(parse_oidc_scope, "scopes separated by spaces, openid among them")


def parse_mechanisms(text: str) -> tuple[str, ...]:
    mechanisms = split_list(text)
    for mechanism in mechanisms:
        if mechanism == "GSSAPI":
            raise ValueError("GSSAPI (Kerberos) is not implemented")
        if mechanism not in SERVER_MECHANISMS:
            raise ValueError(f"{mechanism!r} is none of them")
    return mechanisms


def mechanisms() -> ValueType[tuple[str, ...]]:
    allowed = f"a comma-separated list of {', '.join(SERVER_MECHANISMS[:-1])} and {SERVER_MECHANISMS[-1]}"
    return parsed(parse_mechanisms, allowed, _commas, code=ConfigType.LIST)


def principal_mapping_rules() -> ValueType[PrincipalMapper]:
    return parsed(PrincipalMapper.parse, "DEFAULT, and RULE:PATTERN/REPLACEMENT/[LU], separated by commas", str)


def principals() -> ValueType[tuple[str, ...]]:
    return parsed(parse_principals, "TYPE:NAME entries separated by semicolons, such as User:admin", _semicolons)


def restricted_super_users() -> ValueType[RestrictedSuperUsers]:
    return parsed(parse_restricted_super_users, ALLOWED, format_restricted_super_users)


def is_throttled_replica(entry: str) -> bool:
    """`partition:broker`, or `*` for all."""
    partition, colon, broker = entry.partition(":")
    return entry == "*" or bool(
        colon and partition.isascii() and partition.isdigit() and broker.isascii() and broker.isdigit()
    )


def _commas(value: object) -> str:
    assert isinstance(value, tuple)
    return ",".join(value)


def _semicolons(value: object) -> str:
    assert isinstance(value, tuple)
    return ";".join(value)


def _pairs(value: object) -> str:
    assert isinstance(value, dict)
    pairs: Iterable[tuple[str, object]] = value.items()
    return ",".join(f"{name}:{member}" for name, member in pairs)


def _endpoints_text(value: object) -> str:
    assert isinstance(value, tuple)
    return ",".join(format_host_and_port(*endpoint) for endpoint in value)
