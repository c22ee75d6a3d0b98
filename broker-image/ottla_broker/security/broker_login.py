"""Logins on the inter-broker listener by SCRAM, before a credential can be read from the metadata
log.

A broker that starts has to log in to others in order to copy the metadata log, which would hold the
credential. All brokers of a cluster have the same logins in their settings, so each checks them
against its own. An operator's login may be among them.
"""

import os
from collections.abc import Mapping

from ottla_broker.security.scram import MECHANISMS, SALT_BYTES, ScramCredential, ScramMechanism, make_credential
from ottla_broker.wire.sasl import MIN_ITERATIONS


class BrokerLogins:
    """`mechanism`: the SASL mechanism of brokers; there are no such logins if it is not SCRAM.
    `passwords`: by user name. On the inter-broker listener alone, these credentials replace those
    of the same users in the metadata log.
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
