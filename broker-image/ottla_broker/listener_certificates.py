"""The certificates of listeners with TLS, read again when their files or the settings that name
them change (KIP-226).

Every CHECK_INTERVAL_S the files that settings name are compared with their last content, and at
once when dynamic configs change. New connections, also those to other brokers, use changed
certificates; open connections remain. If the new files cannot be used, the last certificates stay
in use.
"""

import asyncio
import logging
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.config import Listener, SettingError
from ottla_broker.config.listener_security import inter_broker_security, listener_tls
from ottla_broker.event_timeout import wait_for_event
from ottla_broker.wire.client_security import TLS_PROTOCOLS
from ottla_broker.wire.listener_tls import ListenerTls, ServerCertificate, TlsConfigError

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 5.0


class ListenError(Exception):
    """The reason why a listener cannot be opened, in one line."""


class ListenerCertificates:
    """`contexts`: TLS contexts of the bound listeners, by name. `expire_at_s`: the end of the
    validity of their own certificates, in seconds since the epoch.
    """

    def __init__(self, broker: Broker) -> None:
        self.contexts: dict[str, ssl.SSLContext] = {}
        self.expire_at_s: dict[str, float] = {}
        self._broker = broker
        self._fingerprints: dict[str, bytes] = {}
        self._failures: dict[str, str] = {}  # what was logged last, by listener
        self._has_changed = asyncio.Event()
        broker.config.subscribe_to_certificates(self._has_changed.set)
        self._tasks = BackgroundTasks()

    def load(self, listener: Listener) -> None:
        """Loads the certificate of a listener with TLS, at start. Logs an error if clients will
        refuse it. Raises ListenError.
        """
        tls = listener_tls(self._broker.config, listener.name)
        try:
            self._fingerprints[listener.name] = tls.fingerprint()
            self.contexts[listener.name], certificate = tls.load()
        except TlsConfigError as reason:
            raise ListenError(f"listeners={listener}: {reason}") from None
        self.expire_at_s[listener.name] = certificate.not_after
        if why := certificate.validity_problem(self._broker.runtime.now_ms() / 1000):
            logger.error("listeners=%s: clients refuse the certificate of %s: %s", listener, tls.keystore_setting, why)

    def make_context(self, listener: str, *, client_auth: str | None = None) -> ssl.SSLContext:
        """A TLS context for another server. Its connections use the certificates of a bound
        listener, also after those have changed. `client_auth`: ssl.client.auth in place of the
        listener's. Raises TlsConfigError.
        """
        tls = listener_tls(self._broker.config, listener)
        context, _ = replace(tls, client_auth=client_auth or tls.client_auth).load()

        def use_current(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self.contexts[listener]

        context.sni_callback = use_current
        return context

    def start(self) -> None:
        if self.contexts:
            self._tasks.start(self._run())

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            await wait_for_event(self._has_changed, CHECK_INTERVAL_S)
            self._has_changed.clear()
            await self.reload_changed()

    async def reload_changed(self) -> None:
        """Uses changed certificates for new connections. The reason why certificates cannot be used
        is logged once, and those that were loaded before stay in use.
        """
        config, in_thread = self._broker.config, self._broker.runtime.run_in_thread
        try:
            config.replace_secrets(await in_thread(config.reread_secrets, "ssl."))
        except SettingError as reason:
            self._log_failure("", str(reason))
            return
        has_changed = False
        for name in tuple(self.contexts):
            has_changed |= await self._reload(name, listener_tls(config, name))
        brokers_use_tls = config.security_protocol(config.inter_broker_listener) in TLS_PROTOCOLS
        if has_changed and brokers_use_tls:
            try:
                self._broker.channels.security = await in_thread(inter_broker_security, config)
            except SettingError as reason:
                self._log_failure(config.inter_broker_listener, str(reason))

    async def _reload(self, name: str, tls: ListenerTls) -> bool:
        """True if the listener has other certificates than before."""
        in_thread = self._broker.runtime.run_in_thread
        try:
            fingerprint = await in_thread(tls.fingerprint)
            if fingerprint == self._fingerprints[name]:
                self._failures.pop(name, None)
                return False
            context, certificate = await in_thread(tls.load)
            self._check(certificate)
        except TlsConfigError as reason:
            self._log_failure(name, str(reason))
            return False
        self._failures.pop(name, None)
        self.contexts[name], self._fingerprints[name] = context, fingerprint
        self.expire_at_s[name] = certificate.not_after
        valid_until = f"{datetime.fromtimestamp(certificate.not_after, UTC):%Y-%m-%d %H:%M} UTC"
        logger.info("listener %s has new certificates; the broker's own is valid until %s", name, valid_until)
        return True

    def _check(self, certificate: ServerCertificate) -> None:
        """Raises TlsConfigError if clients would refuse the new certificate now. Then the last one
        stays in use.
        """
        if why := certificate.validity_problem(self._broker.runtime.now_ms() / 1000):
            raise TlsConfigError(f"clients would refuse the certificate: {why}")

    def _log_failure(self, name: str, why: str) -> None:
        """Logs each reason once, because files may be incomplete for a moment. `name`: of the
        listener; empty if the settings cannot be read.
        """
        if self._failures.get(name) != why:
            self._failures[name] = why
            owner = f"listener {name}" if name else "the settings"
            logger.error("changed certificates of %s are not used: %s", owner, why)
