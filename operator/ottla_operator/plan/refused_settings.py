"""Finds settings of a Cluster with which no broker can start, before one is started.

The names and values are checked by the broker's own table of settings (`ottla_broker.config`).
Settings that the operator sets itself, from other fields of the spec, are refused too, because they
would be overridden silently.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from ottla_broker.config import Config, SettingError, find_setting_problems, has_reference
from ottla_operator.plan.console import console_settings
from ottla_operator.plan.inter_broker_login import plan_login
from ottla_operator.plan.listener_security import security_settings
from ottla_operator.resources.cluster import Cluster

OPERATOR_SETTINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("node.id", "broker.id", "cluster.id", "cluster.found", "controller.quorum.bootstrap.servers"),
        "the operator sets it",
    ),
    "broker.rack": "it follows from spec.rack",
    "broker.node": "it is the node that the broker runs on",
    **dict.fromkeys(
        (
            "listeners",
            "advertised.listeners",
            "listener.security.protocol.map",
            "inter.broker.listener.name",
            "security.inter.broker.protocol",
            "sasl.mechanism.inter.broker.protocol",
            "sasl.inter.broker.optional",
            "sasl.inter.broker.login.version",
        ),
        "it follows from spec.listeners",
    ),
    "ssl.inter.broker.optional": "it follows from spec.tls",
    **dict.fromkeys(("log.dir", "log.dirs"), "the brokers' disks follow from spec.storage"),
    **dict.fromkeys(
        ("schema.registry.listener", "schema.registry.security.listener"), "it follows from spec.schemaRegistry"
    ),
    **dict.fromkeys(
        (
            "console.oidc.issuer",
            "console.oidc.client.id",
            "console.oidc.client.secret",
            "console.oidc.truststore.location",
            "console.oidc.scope",
            "console.oidc.redirect.uri",
        ),
        "it follows from spec.console.oidc",
    ),
    "http.security.listener": "the probes of brokers' pods and `ottla up` connect to http.listener without TLS",
    "http.listener": "brokers on Kubernetes always have it, and those of `ottla up` would share its port",
    **dict.fromkeys(
        (
            "ssl.keystore.location",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.truststore.location",
            "ssl.truststore.certificates",
        ),
        "certificates follow from spec.tls",
    ),
    **dict.fromkeys(("ssl.client.auth", "sasl.enabled.mechanisms"), "it follows from authentication in spec.listeners"),
    **dict.fromkeys(
        ("authorizer.class.name", "super.users", "restricted.super.users"), "it follows from spec.authorization"
    ),
}
"""Settings that `spec.config` cannot have, and why. The operator derives most of them from the rest
of the spec.
"""


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """`name`: a key of `spec.config`; None: several settings exclude each other. `reason` names the
    settings, their values and the allowed ones."""

    name: str | None
    reason: str


def find_refused_settings(cluster: Cluster) -> tuple[RefusedSetting, ...]:
    """Every problem of `spec.config`; empty if brokers start with it."""
    invalid = tuple(
        RefusedSetting(name, problem)
        for name, text in cluster.config.items()
        for problem in _find_problems(cluster, name, text)
    )
    return invalid or tuple(RefusedSetting(None, it) for it in _find_conflicts(cluster))


def describe_refused_settings(refused: tuple[RefusedSetting, ...]) -> str:
    """A sentence for a condition; empty if nothing is refused."""
    return "; ".join(f"spec.config: {it.reason}" for it in refused)


def _find_problems(cluster: Cluster, name: str, text: str) -> Iterator[str]:
    if name in security_settings(cluster, plan_login(cluster, ())) and name not in OPERATOR_SETTINGS:
        yield f"{name} cannot be set here: it follows from authentication in spec.listeners"
    elif (why := OPERATOR_SETTINGS.get(name)) is not None:
        yield f"{name} cannot be set here: {why}"
    elif name in console_settings(cluster, PurePath()):
        yield f"{name} cannot be set here: it follows from spec.console"
    else:
        yield from find_setting_problems(name, text)


def _find_conflicts(cluster: Cluster) -> tuple[str, ...]:
    """Problems of combinations of settings that are valid one by one."""
    protocols = dict.fromkeys((it.name.upper() for it in cluster.listeners), "PLAINTEXT")
    settings = {
        **{name: text for name, text in cluster.config.items() if not has_reference(text)},
        "log.dirs": "/data",
        "listeners": ",".join(f"{it.name.upper()}://:{it.port}" for it in cluster.listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{it}" for name, it in protocols.items()),
        "inter.broker.listener.name": cluster.listeners[0].name.upper(),
        **security_settings(cluster, plan_login(cluster, ())),
    }
    try:
        Config.of(settings)
    except SettingError as error:
        return error.problems
    return ()
