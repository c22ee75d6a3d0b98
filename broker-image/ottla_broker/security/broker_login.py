"""The login of brokers at each other by SCRAM, before a credential can be read from the metadata
log.

A broker that starts has to log in to others in order to copy the metadata log, which would hold the
credential. All brokers of a cluster have the same login in their settings, so each checks it
against its own.
"""

import secrets
from dataclasses import dataclass, field

from ottla_broker.security.scram import MECHANISMS, SALT_BYTES, ScramCredential, ScramMechanism, make_credential
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.sasl import MIN_ITERATIONS


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """`credential`: of the password in this broker's settings. It stands over one of the metadata
    log, on the inter-broker listener alone.
    """

    username: str
    mechanism: ScramMechanism
    credential: ScramCredential = field(repr=False)

    @classmethod
    def from_security(cls, security: ClientSecurity) -> "BrokerLogin | None":
        """None where brokers do not log in by SCRAM."""
        mechanism = MECHANISMS.get(security.mechanism)
        if mechanism is None:
            return None
        salt = secrets.token_bytes(SALT_BYTES)
        return cls(security.username, mechanism, make_credential(mechanism, security.password, salt, MIN_ITERATIONS))

    def is_of(self, username: str, mechanism: ScramMechanism) -> bool:
        return (self.username, self.mechanism) == (username, mechanism)
