"""SCRAM, the client's side (RFC 5802, RFC 7677, as Kafka uses it: KIP-84): a password is proven and never sent, and the server proves that it knows
it too. Pure.

Names and passwords are taken as they are: SASLprep (RFC 4013) changes nothing in ASCII, and Kafka's server does not apply it to others.
"""

import base64
import hashlib
import hmac
from typing import Final

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
NO_CHANNEL_BINDING: Final = "n,,"


class Refused(Exception):
    """The server says no, or is not who it should be."""


class ScramClient:
    """One exchange: send `first`, give the answer to `final`, send what that returns, give the answer to `verify`. `nonce`: printable, without
    commas, never used twice. Refused."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    @property
    def first(self) -> bytes:
        return (NO_CHANNEL_BINDING + self._bare).encode()

    def final(self, answer: bytes) -> bytes:
        told = _fields(answer)
        if not told["r"].startswith(self._nonce) or told["r"] == self._nonce:
            raise Refused("its nonce is not made from ours")
        iterations = int(told["i"])
        if iterations < LEAST_ITERATIONS:
            raise Refused(f"it wants {iterations} iterations; {LEAST_ITERATIONS} are the least that is safe")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, base64.b64decode(told["s"]), iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(NO_CHANNEL_BINDING.encode()).decode()},r={told['r']}"
        spoken = ",".join((self._bare, answer.decode(), without_proof)).encode()
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), spoken)
        proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), spoken)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        told = _fields(answer)
        if not hmac.compare_digest(base64.b64decode(told.get("v", "")), self._signature):
            raise Refused("the server does not know the password itself")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._digest).digest()


def _fields(answer: bytes) -> dict[str, str]:
    """Refused when it holds an error (`e=`), or is no answer of SCRAM's."""
    try:
        found = dict(part.split("=", 1) for part in answer.decode().split(","))
    except ValueError:
        raise Refused("its answer is not SCRAM's") from None
    if "e" in found:
        raise Refused(found["e"])
    return found
