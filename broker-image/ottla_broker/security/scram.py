"""SCRAM, the server's side (RFC 5802, RFC 7677, KIP-84): credentials, and one exchange. Pure."""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from ottla_broker.wire.digests import are_equal, compute_hash, compute_hmac, compute_shake256, derive_key
from ottla_broker.wire.sasl import MIN_ITERATIONS

MAX_ITERATIONS: Final = 16384
DEFAULT_ITERATIONS: Final = 8192
"""Kafka's default for a new credential."""
SALT_BYTES: Final = 24
INVALID_CREDENTIALS: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)

OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class ScramMechanism(IntEnum):
    """Codes of Kafka's ScramMechanism."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def title(self) -> str:
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def digest(self) -> str:
        return self.name.replace("_", "").lower()


MECHANISMS: Final = {mechanism.title: mechanism for mechanism in ScramMechanism}


class ScramCredential(msgspec.Struct, frozen=True):
    """The verifier that the server stores of a password: it can check a proof, and cannot be used
    to log in.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def format_credential(credential: ScramCredential) -> str:
    """The text that Kafka's tools print of a credential: `salt=…,stored_key=…,server_key=…,
    iterations=…`, with bytes in base64.
    """
    salt, stored, server = (
        base64.b64encode(it).decode() for it in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def parse_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Raises ValueError for a text that is not a whole credential of this mechanism."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("it is not a SCRAM credential")
    salt, stored, server = (base64.b64decode(fields[it], validate=True) for it in ("salt", "stored_key", "server_key"))
    iterations, size = int(fields["iterations"]), len(compute_hash(mechanism.digest, b""))
    if not salt or (len(stored), len(server)) != (size, size) or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"it is not a credential of {mechanism.title}")
    return ScramCredential(salt, stored, server, iterations)


class SaslAuthenticationError(Exception):
    """The login of a client failed, by any mechanism: wrong credentials, or a malformed message.
    The client gets the text.
    """


def make_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    salted = derive_key(mechanism.digest, password.encode(), salt, iterations)
    return credential_from_salted_password(mechanism, salted, salt, iterations)


def credential_from_salted_password(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Creates a credential from the fields of AlterUserScramCredentials, whose password the client
    has salted.
    """
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    server_key = _hmac(mechanism, salted_password, b"Server Key")
    return ScramCredential(salt, compute_hash(mechanism.digest, client_key), server_key, iterations)


class CredentialShape(NamedTuple):
    """The parts of a credential, besides its salt, that the server's first message shows."""

    salt_bytes: int
    iterations: int


DEFAULT_SHAPE: Final = CredentialShape(SALT_BYTES, DEFAULT_ITERATIONS)
SHAPES_VALID_S: Final = 10.0


class CredentialShapes:
    """The shapes of the users' credentials, for decoys. `credentials`: returns the credentials of
    all users, by user and mechanism. The shapes are computed at most once in SHAPES_VALID_S,
    because any client may try to log in as unknown users.
    """

    def __init__(
        self, credentials: Callable[[], Mapping[tuple[str, int], ScramCredential]], now_s: Callable[[], float]
    ) -> None:
        self._credentials = credentials
        self._now_s = now_s
        self._shapes: dict[ScramMechanism, tuple[float, tuple[CredentialShape, ...]]] = {}

    def find(self, mechanism: ScramMechanism) -> Sequence[CredentialShape]:
        at_s, shapes = self._shapes.get(mechanism, (-math.inf, ()))
        if self._now_s() - at_s > SHAPES_VALID_S:
            credentials = self._credentials().items()
            shapes = tuple(
                sorted(CredentialShape(len(it.salt), it.iterations) for (_, of), it in credentials if of == mechanism)
            )
            self._shapes[mechanism] = self._now_s(), shapes
        return shapes


def decoy_credential(
    mechanism: ScramMechanism, username: str, secret: bytes, shapes: Sequence[CredentialShape] = ()
) -> ScramCredential:
    """A credential for a user that does not exist: the exchange takes the same steps and time, and
    fails at its end. The salt of a name is the same each time, so that two attempts do not reveal
    which users exist. The credential has one of `shapes`, those of the users that exist."""
    seed = compute_hmac("sha256", secret, username.encode())
    shape = shapes[int.from_bytes(seed[:8]) % len(shapes)] if shapes else DEFAULT_SHAPE
    salt = compute_shake256(b"salt " + seed, shape.salt_bytes)
    decoy_key = compute_hmac(mechanism.digest, secret, b"key " + username.encode())
    return ScramCredential(salt, decoy_key, decoy_key, shape.iterations)


def parse_add_scram(text: str, salt: bytes) -> tuple[str, ScramMechanism, ScramCredential]:
    """User, mechanism and credential of `SCRAM-SHA-256=[name=alice,password=…]`, the form of
    kafka-storage.sh; also with `iterations=`. Raises ValueError, without the password."""
    allowed = "MECHANISM=[name=NAME,password=PASSWORD], where MECHANISM is SCRAM-SHA-256 or SCRAM-SHA-512"
    title, _, rest = text.partition("=")
    mechanism = MECHANISMS.get(title.strip())
    if mechanism is None or not (rest.startswith("[") and rest.endswith("]")):
        raise ValueError(f"--add-scram of {title!r}: allowed: {allowed}")
    options = dict(part.strip().partition("=")[::2] for part in rest[1:-1].split(","))
    unknown = options.keys() - {"name", "password", "iterations"}
    if unknown or not (options.get("name") and options.get("password")):
        raise ValueError(f"--add-scram of {title!r} needs a name and a password; allowed: {allowed}")
    iterations = options.get("iterations", str(DEFAULT_ITERATIONS))
    if not (iterations.isdecimal() and MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS):
        raise ValueError(f"iterations={iterations}; allowed: {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    credential = make_credential(mechanism, options["password"], salt, int(iterations))
    return options["name"], mechanism, credential


class ScramServer:
    """One exchange: `first_response` to the client's first message, `final_response` to its second.
    Raises SaslAuthenticationError.

    `is_token`: the username is the id of a delegation token. `nonce`: printable, without commas,
    and unique.
    """

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._client_first_bare = ""
        self._server_first = ""
        self._gs2_header = ""
        self._client_nonce = ""
        self.username = ""
        self.is_token = False

    def read_first(self, message: bytes) -> str:
        """The username of the client's first message."""
        text = _decode(message)
        gs2, authorization_id, bare = _split_gs2(text)
        fields = _parse_fields(bare)
        if "m" in fields or "n" not in fields or not fields.get("r"):
            raise SaslAuthenticationError("Invalid SCRAM client first message")
        self._gs2_header, self._client_first_bare = gs2, bare
        self._client_nonce = fields["r"]
        self.username = _unescape(fields["n"])
        self.is_token = fields.get("tokenauth", "").lower() == "true"
        if authorization_id not in ("", self.username):
            raise SaslAuthenticationError(OTHER_AUTHORIZATION_ID)
        return self.username

    def first_response(self, credential: ScramCredential) -> bytes:
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._client_nonce}{self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def final_response(self, message: bytes, credential: ScramCredential) -> bytes:
        without_proof, comma, proof_text = _decode(message).rpartition(",p=")
        fields = _parse_fields(without_proof)
        if not comma or fields.get("c") != base64.b64encode(self._gs2_header.encode()).decode():
            raise SaslAuthenticationError("Invalid SCRAM client final message")
        # Some builds of librdkafka repeat the client's part; the server's part is what must be
        # right (CVE-2024-56128).
        if not are_equal(fields.get("r", "")[-len(self._nonce) :].encode(), self._nonce.encode()):
            raise SaslAuthenticationError("Invalid client nonce in the final client message.")
        auth_message = ",".join((self._client_first_bare, self._server_first, without_proof)).encode()
        proof = _decode_base64(proof_text)
        signature = _hmac(self._mechanism, credential.stored_key, auth_message)
        if len(proof) != len(signature):
            raise SaslAuthenticationError("Invalid SCRAM client final message")
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        stored_key = compute_hash(self._mechanism.digest, client_key)
        if not are_equal(stored_key, credential.stored_key):
            raise SaslAuthenticationError(f"{INVALID_CREDENTIALS} {self._mechanism.title}")
        return b"v=" + base64.b64encode(_hmac(self._mechanism, credential.server_key, auth_message))


def _split_gs2(text: str) -> tuple[str, str, str]:
    """GS2 header, authorization id, and the bare message. Channel binding is not supported (RFC
    5802, 6).
    """
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[0] not in ("n", "y") or not (parts[1] == "" or parts[1].startswith("a=")):
        raise SaslAuthenticationError("Invalid SCRAM client first message")
    return f"{parts[0]},{parts[1]},", _unescape(parts[1].removeprefix("a=")), parts[2]


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _parse_fields(text: str) -> dict[str, str]:
    """The first field of each name."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise SaslAuthenticationError("Invalid SCRAM message")
        fields.setdefault(name, value)
    return fields


def _decode(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationError("a SCRAM message that is not UTF-8") from None


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise SaslAuthenticationError("Invalid SCRAM client final message") from None


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return compute_hmac(mechanism.digest, key, message)
