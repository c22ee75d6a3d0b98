"""Passwords of users over HTTP, where no SASL exchange proves them: checked against the same users
as logins on a listener.
"""

import os
import time
from collections import OrderedDict
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.security.sasl_session import ListenerSasl
from ottla_broker.security.scram import MECHANISMS, CredentialShapes, ScramMechanism, decoy_credential, make_credential
from ottla_broker.wire.client_security import PLAIN
from ottla_broker.wire.digests import are_equal, compute_hmac

MAX_REMEMBERED: Final = 1000
"""Number of right passwords that are remembered, because checking one takes milliseconds."""


class UserPasswords:
    """Checks passwords of PLAIN and SCRAM users. `_remembered`: stored keys of passwords that were
    right, by a keyed hash of mechanism, user and password.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._secret = os.urandom(32)
        self._shapes = CredentialShapes(lambda: broker.image.scram_credentials, time.monotonic)
        self._remembered: OrderedDict[bytes, bytes] = OrderedDict()

    async def is_right(self, sasl: ListenerSasl, name: str, password: str) -> bool:
        """True if the user can log in with PLAIN or SCRAM, as far as the listener has them. Does
        not wait after a wrong password.
        """
        if PLAIN in sasl.mechanisms and (expected := sasl.plain_users.get(name)) is not None:
            return are_equal(password.encode(), expected.encode())
        mechanisms = [MECHANISMS[one] for one in sasl.mechanisms if one in MECHANISMS]
        # One after the other, also for unknown users, so that the time does not show which exist.
        matches = [await self._matches_scram(mechanism, name, password) for mechanism in mechanisms]
        return any(matches)

    async def _matches_scram(self, mechanism: ScramMechanism, name: str, password: str) -> bool:
        stored = self._broker.image.scram_credentials.get((name, mechanism))
        credential = stored or decoy_credential(mechanism, name, self._secret, self._shapes.find(mechanism))
        proof = f"{mechanism}\0{name}\0{password}".encode()
        key = compute_hmac("sha256", self._secret, proof)
        stored_key = self._remembered.get(key)
        if stored_key is None:
            made = await self._broker.runtime.run_in_thread(
                make_credential, mechanism, password, credential.salt, credential.iterations
            )
            stored_key = made.stored_key
        is_right = are_equal(stored_key, credential.stored_key) and stored is not None
        if is_right:
            self._remembered[key] = stored_key
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        else:
            self._remembered.pop(key, None)
        return is_right
