"""Certificates of a listener that are changed while the broker runs, by `listener.name.NAME.ssl.…`
of one broker (KIP-226).

The checks are Apache Kafka's: what connects now, clients and other brokers, must be able to connect
afterwards.
"""

from collections.abc import Iterator, Mapping

from ottla_broker.config.config import Config
from ottla_broker.config.listener_security import listener_tls
from ottla_broker.config.security_settings import SSL_ALLOW_DN_CHANGES, SSL_ALLOW_SAN_CHANGES
from ottla_broker.config.server_properties import LISTENER_PREFIX, find_dynamic_listener_setting
from ottla_broker.wire.client_security import TLS_PROTOCOLS
from ottla_broker.wire.listener_tls import ListenerTls, ServerCertificate, TlsConfigError


def find_certificate_problems(config: Config, changes: Mapping[str, str | None], now_s: float) -> Iterator[str]:
    """The reasons for which this broker cannot use the changes. Reads the files that they name.
    `changes`: of the broker's dynamic configs; None removes one. `now_s`: seconds since the epoch.
    """
    listener_of_change = {name: it[0] for name in changes if (it := find_dynamic_listener_setting(name)) is not None}
    listener_names = {it.name for it in config.listeners}
    changed = config.with_broker_changes(changes)
    for listener in sorted(set(listener_of_change.values())):
        prefix = f"{LISTENER_PREFIX}{listener.lower()}"
        if listener not in listener_names:
            if any(changes[name] is not None for name, it in listener_of_change.items() if it == listener):
                yield f"{prefix} is the name of no listener in listeners"
        elif config.security_protocol(listener) in TLS_PROTOCOLS:
            problems = _find_problems(config, listener, listener_tls(changed, listener), now_s)
            yield from (f"{prefix}: {it}" for it in problems)


def _find_problems(config: Config, listener: str, after: ListenerTls, now_s: float) -> Iterator[str]:
    before = listener_tls(config, listener)
    try:
        _, new = after.load()
        after.fingerprint()  # reads the truststore, too
    except TlsConfigError as reason:
        yield str(reason)
        return
    if why := new.validity_problem(now_s):
        yield f"clients would refuse the certificate of {after.keystore_setting}: {why}"
    try:
        _, old = before.load()
    except TlsConfigError:
        return  # its files are gone: there is nothing to compare with
    yield from _find_name_problems(config, listener, old, new)
    if after.has_truststore and not before.has_truststore:
        yield "a truststore cannot be added while the broker runs: the listener has none"
    if listener == config.inter_broker_listener:
        for presented, trusting in ((after, before), (before, after)):
            try:
                presented.check_trusted_by(trusting)
            except TlsConfigError as reason:
                yield f"brokers could not connect to each other: {reason}"


def _find_name_problems(config: Config, listener: str, old: ServerCertificate, new: ServerCertificate) -> Iterator[str]:
    dn, san = SSL_ALLOW_DN_CHANGES, SSL_ALLOW_SAN_CHANGES
    if not config.listener_value(listener, dn) and old.subject.lower() != new.subject.lower():
        yield f"the certificate has the subject {new.subject}, and the present one {old.subject}; allowed by {dn.name}"
    missing = sorted(set(old.names) - set(new.names))
    if missing and not config.listener_value(listener, san):
        yield f"the certificate lacks the names {', '.join(missing)} of the present one; allowed by {san.name}"
