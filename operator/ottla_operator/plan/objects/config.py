"""The settings that brokers are started with, as a ConfigMap: one file for all brokers, and one
more for each broker.

A ConfigMap is named by its content and never changed: a pod keeps the settings that it was started
with until it is restarted on purpose, and its volume names them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from ottla_broker.wire import properties
from ottla_operator.plan import inter_broker_login, listener_security
from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.console import console_settings
from ottla_operator.plan.inter_broker_login import InterBrokerLogin
from ottla_operator.plan.inter_broker_tls import InterBrokerTls, tls_settings, with_tls
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.services import ServiceAddresses, advertised_address, external_listeners
from ottla_operator.plan.settings import BOOTSTRAP_SERVERS, CLUSTER_FOUND, Settings, replication_defaults
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

COMMON_FILE: Final = "cluster.properties"
INTER_BROKER: Final = "INTER_BROKER"  # no listener of a Cluster can have this name: theirs have no underscore
DATA_PATH: Final = "/var/lib/ottla"
CERTIFICATES_PATH: Final = "/etc/ottla-certificates"
LOGIN_PATH: Final = "/etc/ottla-login"
CONSOLE_PATH: Final = "/etc/ottla-console"
_LETTERS: Final = {"\n": "n", "\r": "r", "\t": "t", "\f": "f"}
_LINE_ENDS: Final = "\x0b\x1c\x1d\x1e\x85\u2028\u2029"

_SETTINGS_OF_KEYS: Final = {
    tls.CHAIN: "ssl.keystore.certificate.chain",
    tls.KEY: "ssl.keystore.key",
    tls.AUTHORITIES: "ssl.truststore.certificates",
}


def broker_file(broker: int | str) -> str:
    """File of one broker's settings. `broker`: its id, or a variable that Kubernetes replaces by
    it.
    """
    return f"broker-{broker}.properties"


def common_settings(
    cluster: Cluster, broker_count: int, login: InterBrokerLogin, transport: InterBrokerTls = InterBrokerTls.NONE
) -> dict[str, str]:
    """Settings of all brokers. Each broker replaces `${env:…}` from its environment.
    `broker_count`: replication defaults and the bootstrap servers of the quorum follow from it.
    `login` and `transport` are those of the inter-broker listener.
    """
    ports = {INTER_BROKER: names.brokers_port(cluster), **{it.name.upper(): it.port for it in cluster.listeners}}
    inter_broker_protocol = with_tls(inter_broker_login.listener_protocol(login), transport)
    protocols = {INTER_BROKER: inter_broker_protocol, **listener_security.security_protocols(cluster)}
    host = "${env:POD_NAME}." + names.service_host(cluster, names.headless_service(cluster))
    settings = {
        **replication_defaults(broker_count),
        **cluster.config,
        "node.id": "${env:BROKER_ID}",
        "listeners": ",".join(f"{name}://:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{host}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": INTER_BROKER,
        "log.dirs": f"{DATA_PATH}/data",
        BOOTSTRAP_SERVERS: ",".join(
            f"{names.pod_host(cluster, broker)}:{ports[INTER_BROKER]}"
            for broker in range(names.FIRST_BROKER, names.FIRST_BROKER + broker_count)
        ),
        "http.listener": f":{names.http_port(cluster)}",
        **listener_security.security_settings(cluster, login),
        **inter_broker_login.login_settings(login, INTER_BROKER, LOGIN_PATH),
        **tls_settings(transport),
        **console_settings(cluster, PurePath(CONSOLE_PATH)),
    }
    if (registry_port := cluster.schema_registry_port) is not None:
        settings |= {
            "schema.registry.listener": f":{registry_port}",
            "schema.registry.security.listener": cluster.schema_registry_listener,
        }
    if tls.secret_name(cluster):
        settings |= {
            _SETTINGS_OF_KEYS[key]: f"${{directory:{CERTIFICATES_PATH}:{key}}}" for key in tls.required_keys(cluster)
        }
    if cluster.spec.rack:
        settings["broker.rack"] = "${env:BROKER_RACK}"
    return settings


def broker_settings(
    cluster: Cluster, broker: int, addresses: ServiceAddresses, *, founds: bool = False
) -> dict[str, str]:
    """Further settings of one broker. Every address must be known. `founds`: True if the first
    broker may found the cluster."""
    founding = {CLUSTER_FOUND: "true"} if founds and broker == names.FIRST_BROKER else {}
    if not external_listeners(cluster):
        return founding
    host = names.pod_host(cluster, broker)
    advertised = [f"{INTER_BROKER}://{host}:{names.brokers_port(cluster)}"]
    for listener in cluster.listeners:
        address = (
            advertised_address(cluster, listener, broker, addresses)
            if listener in external_listeners(cluster)
            else f"{host}:{listener.port}"
        )
        assert address is not None, f"broker {broker} has no address yet"
        advertised.append(f"{listener.name.upper()}://{address}")
    return {"advertised.listeners": ",".join(advertised), **founding}


def config_map(cluster: Cluster, common: Settings, own: Mapping[int, Settings]) -> Json:
    """`own`: settings of single brokers."""
    data = {
        COMMON_FILE: format_properties(common),
        **{broker_file(broker): format_properties(it) for broker, it in sorted(own.items())},
    }
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(cluster, f"{cluster.name}-settings-{digest}"),
        "immutable": True,
        "data": data,
    }


def read_settings(config_map: Json, broker: int) -> dict[str, str]:
    """The settings of a broker whose pod mounts this ConfigMap."""
    data = config_map.get("data") or {}
    return {**parse_properties(data.get(COMMON_FILE, "")), **parse_properties(data.get(broker_file(broker), ""))}


def format_properties(settings: Settings) -> str:
    """A properties file, as brokers and `parse_properties` read it."""
    return "".join(f"{_escape(key, ' :=')}={_escape(settings[key], '')}\n" for key in sorted(settings))


def parse_properties(text: str) -> dict[str, str]:
    return {it.key: it.value for it in properties.parse_properties(text)}


def _escape(text: str, separators: str) -> str:
    escaped = []
    for index, character in enumerate(text):
        if character in _LETTERS:
            escaped.append("\\" + _LETTERS[character])
        elif character in _LINE_ENDS:
            escaped.append(f"\\u{ord(character):04x}")
        elif character == "\\" or character in separators or (index == 0 and character in " #!"):
            escaped.append("\\" + character)
        else:
            escaped.append(character)
    return "".join(escaped)
