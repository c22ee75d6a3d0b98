"""How clients of each listener log in: by SASL, or by certificates whose subjects are mapped to
names.

Login modules that settings refer to as files are read again when they change, so that the passwords
between brokers change without a restart. Connections whose logins they no longer have are closed.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.config import (
    DELEGATION_TOKEN_SECRET_KEY,
    SASL_INTER_BROKER_LOGIN_VERSION,
    SASL_JAAS_CONFIG,
    SSL_PRINCIPAL_MAPPING_RULES,
    Config,
    SettingError,
)
from ottla_broker.config.listener_security import (
    OauthSettings,
    find_security_problems,
    inter_broker_security,
    inter_broker_users,
    listener_oauth,
    listener_sasl,
)
from ottla_broker.runtime import Runtime
from ottla_broker.security.delegation_tokens import TokenLogin, TokenSecret
from ottla_broker.security.jwks import JsonWebKey, JsonWebKeySet
from ottla_broker.security.oauthbearer import TokenValidator
from ottla_broker.security.principal_mapping import PrincipalMapper
from ottla_broker.security.sasl_session import SaslSession, ScramLogin
from ottla_broker.security.scram import (
    MECHANISMS,
    SALT_BYTES,
    CredentialShapes,
    ScramCredential,
    ScramMechanism,
    make_credential,
)
from ottla_broker.wire.client_security import SASL_PROTOCOLS
from ottla_broker.wire.sasl import MIN_ITERATIONS

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 5.0


class ListenerLogins:
    """`sasl_sessions`: functions that create the session of a new connection, by the names of the
    listeners with SASL. `principal_mappers`: by the names of the listeners where certificates of
    clients are their logins.
    """

    def __init__(self, broker: Broker, now_s: Callable[[], float]) -> None:
        self._broker = broker
        self._now_s = now_s
        self._broker_users = inter_broker_users(broker.config)
        self._broker_logins = BrokerLogins(broker.channels.security.mechanism, self._broker_users)
        self._failure = ""  # what was logged last
        self._validators: dict[str, TokenValidator] = {}
        self._key_sets: list[JsonWebKeySet] = []
        self._tasks = BackgroundTasks()
        config = broker.config
        secret_key = config(DELEGATION_TOKEN_SECRET_KEY)
        self._shapes = CredentialShapes(lambda: broker.image.scram_credentials, now_s)
        self._token_secret = None if secret_key is None else TokenSecret(secret_key)
        protocols = {one.name: config.security_protocol(one.name) for one in config.listeners}
        self.sasl_sessions = {
            name: partial(self._new_session, name) for name, protocol in protocols.items() if protocol in SASL_PROTOCOLS
        }
        self.principal_mappers: dict[str, PrincipalMapper] = {
            name: config.listener_value(name, SSL_PRINCIPAL_MAPPING_RULES)
            for name, protocol in protocols.items()
            if protocol == "SSL"
        }
        for name in self.sasl_sessions:
            self._add_validator(config, broker.runtime, name)

    def start(self) -> None:
        """Begins to fetch the keys of OAuth tokens and to read login modules again, regularly."""
        for keys in self._key_sets:
            self._tasks.start(keys.run())
        if any(key[2] is SASL_JAAS_CONFIG for key in self._broker.config.static.references):
            self._tasks.start(self._run())

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.reload_changed()

    async def reload_changed(self) -> None:
        """Uses changed login modules for new connections. The reason why login modules cannot be
        used is logged once, and those that were read before stay in use.
        """
        config, in_thread = self._broker.config, self._broker.runtime.run_in_thread
        try:
            # Read before the login modules and used after them, so that a broker that shows the
            # version has the login modules.
            version = await in_thread(config.reread_secrets, SASL_INTER_BROKER_LOGIN_VERSION.name)
            after = await in_thread(config.reread_secrets, SASL_JAAS_CONFIG.name)
            before = config.current_secrets(SASL_JAAS_CONFIG.name)
            if after == before:
                self._failure = ""
                config.replace_secrets(version)
                return
            config.replace_secrets(after)
            if problems := [*find_security_problems(config)]:
                config.replace_secrets(before)
                raise SettingError(problems)
        except SettingError as reason:
            if self._failure != str(reason):
                self._failure = str(reason)
                logger.error("changed login modules are not used: %s", reason)
            return
        if (users := inter_broker_users(config)) != self._broker_users:
            mechanism = self._broker.channels.security.mechanism
            self._broker_logins = await in_thread(BrokerLogins, mechanism, users)
            self._broker_users = users
        # Also where users are the same: this broker may log in as another of them now.
        self._broker.channels.security = await in_thread(inter_broker_security, config)
        config.replace_secrets(version)
        logger.info("login modules have changed and are used for new connections")
        self._broker.on_logins_removed()

    def is_removed(self, listener: str, login: ScramLogin) -> bool:
        """True if the credential or token of this login was removed."""
        if login.is_token:
            return login.name not in self._broker.image.delegation_tokens
        return self._find_credential(listener, login.name, login.mechanism) is None

    def _add_validator(self, config: Config, runtime: Runtime, listener: str) -> None:
        if (settings := listener_oauth(config, listener)) is not None:
            endpoint = settings.endpoint
            keys = make_key_set(endpoint.url, partial(runtime.run_in_thread, endpoint.fetch), settings)
            self._key_sets.append(keys)
            self._validators[listener] = TokenValidator(keys, settings.rules, runtime.now_ms)

    def _new_session(self, listener: str) -> SaslSession:
        """A session with the listener's current settings."""
        sasl = listener_sasl(self._broker.config, listener)
        find_credential = partial(self._find_credential, listener)
        validator = self._validators.get(listener)
        return SaslSession(sasl, find_credential, self._now_s, validator, self._find_token, self._shapes.find)

    def _find_token(self, token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
        token, now_ms = self._broker.image.delegation_tokens.get(token_id), self._broker.runtime.now_ms()
        if self._token_secret is None or token is None or token.is_expired(now_ms):
            return None
        return self._token_secret.login_of(token, mechanism, now_ms)

    def _find_credential(self, listener: str, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        is_inter_broker = listener == self._broker.config.inter_broker_listener
        if is_inter_broker and (own := self._broker_logins.find(user, mechanism)) is not None:
            return own
        return self._broker.image.scram_credentials.get((user, mechanism))


class BrokerLogins:
    """Logins of brokers by SCRAM on the inter-broker listener, where their credentials replace
    those of the same users in the metadata log. An operator's login may be among them.

    A broker that starts has to log in to others in order to copy the metadata log, so its
    credential cannot be there. All brokers of a cluster have the same logins in their settings, and
    each checks those of others against its own.

    `mechanism`: the SASL mechanism of brokers; there are no such logins if it is not SCRAM.
    `passwords`: by user name.
    """

    def __init__(self, mechanism: str, passwords: Mapping[str, str]) -> None:
        self._mechanism = scram = MECHANISMS.get(mechanism)
        self._credentials: dict[str, ScramCredential] = {}
        if scram is not None:
            self._credentials = {
                user: make_credential(scram, password, os.urandom(SALT_BYTES), MIN_ITERATIONS)
                for user, password in passwords.items()
            }

    def find(self, username: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """None if the credential of the metadata log applies."""
        return self._credentials.get(username) if mechanism == self._mechanism else None


def make_key_set(name: str, fetch: Callable[[], Awaitable[list[JsonWebKey]]], settings: OauthSettings) -> JsonWebKeySet:
    """Keys that are fetched as often as a listener's `settings` say."""
    return JsonWebKeySet(
        name,
        fetch,
        refresh_s=settings.refresh_s,
        retry_backoff_s=settings.retry_backoff_s,
        retry_backoff_max_s=settings.retry_backoff_max_s,
    )
