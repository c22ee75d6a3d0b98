"""Validates OAuth access tokens and OpenID Connect's id tokens: JWTs (RFC 7519) that one of the
endpoint's keys signed.

Signatures are checked by PyJWT. Only algorithms with a public key are accepted: a token without a
signature, or with one made by a shared secret, is rejected. The token must say when it was issued
and when it expires, as in Kafka.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ottla_broker.security.jwks import JsonWebKey
from ottla_broker.wire.digests import are_equal

ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Type of key → allowed signature algorithms."""
MAX_TOKEN_CHARACTERS: Final = 100_000


class InvalidToken(Exception):
    """The reason why a token is rejected, for the broker's log: the client does not get it."""


class TokenRules(msgspec.Struct, frozen=True):
    """`audiences`: a token must name one of them, or no audience if this is empty. `issuer`: the
    required issuer; empty: any."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class AccessToken(msgspec.Struct, frozen=True):
    """`expires_ms`: milliseconds since 1970."""

    subject: str
    scopes: frozenset[str]
    expires_ms: int


def read_key_id(token: str) -> str:
    """The `kid` of the token's header; empty without one. Raises InvalidToken."""
    return str(_read_header(token).get("kid") or "")


def validate_token(token: str, keys: Sequence[JsonWebKey], rules: TokenRules) -> AccessToken:
    """Validates an access token. Raises InvalidToken."""
    claims = _validate_claims(token, keys, rules)
    return AccessToken(
        _read_subject(claims, rules.subject_claim), _read_scopes(claims, rules.scope_claim), _read_expiry_ms(claims)
    )


class IdToken(msgspec.Struct, frozen=True):
    """`expires_ms`: milliseconds since 1970."""

    subject: str
    expires_ms: int


def validate_id_token(token: str, keys: Sequence[JsonWebKey], rules: TokenRules, nonce: str) -> IdToken:
    """Validates an id token by section 3.1.3.7 of OpenID Connect Core. `rules` have an issuer and
    one audience, the id of the client. `nonce`: that of the request for the token. Raises
    InvalidToken.
    """
    (client_id,) = rules.audiences
    claims = _validate_claims(token, keys, rules)
    if not are_equal(str(claims.get("nonce")).encode(), nonce.encode()):
        raise InvalidToken("its nonce is not that of this login")
    audience = claims["aud"]
    has_others = isinstance(audience, list) and len(audience) > 1
    if claims.get("azp", None if has_others else client_id) != client_id:
        raise InvalidToken("it was issued to another party (azp)")
    return IdToken(_read_subject(claims, rules.subject_claim), _read_expiry_ms(claims))


def _validate_claims(token: str, keys: Sequence[JsonWebKey], rules: TokenRules) -> dict[str, Any]:
    import jwt  # 30 ms and some megabytes, for listeners with OAUTHBEARER alone

    header = _read_header(token)
    key, algorithm = _find_key(header, keys), str(header.get("alg"))
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(dict(key), algorithm=algorithm).key,
            algorithms=[algorithm],
            audience=rules.audiences or None,
            issuer=rules.issuer or None,
            leeway=rules.clock_skew_s,
            options={"require": ["exp", "iat"], "verify_sub": False},
        )
    except (jwt.PyJWTError, ValueError) as reason:
        raise InvalidToken(str(reason)) from None
    return claims


def _read_expiry_ms(claims: dict[str, Any]) -> int:
    return round(float(claims["exp"]) * 1000)


def _read_header(token: str) -> dict[str, Any]:
    import jwt

    if len(token) > MAX_TOKEN_CHARACTERS:
        raise InvalidToken(f"it has more than {MAX_TOKEN_CHARACTERS} characters")
    try:
        header: dict[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError) as reason:
        raise InvalidToken(str(reason)) from None
    return header


def _find_key(header: dict[str, Any], keys: Sequence[JsonWebKey]) -> JsonWebKey:
    """The key that the header names; without a name, the only one that suits its algorithm."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    suitable = [
        key
        for key in keys
        if algorithm in ALGORITHMS.get(str(key.get("kty")), ())
        and key.get("alg", algorithm) == algorithm
        and key.get("use", "sig") == "sig"
        and (key_id is None or key.get("kid") == key_id)
    ]
    if len(suitable) != 1:
        raise InvalidToken(f"{len(suitable)} keys have id {key_id!r} and suit algorithm {algorithm!r}")
    return suitable[0]


def _read_subject(claims: dict[str, Any], name: str) -> str:
    subject = claims.get(name)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"its claim {name!r} is not a text")
    return subject.strip()


def _read_scopes(claims: dict[str, Any], name: str) -> frozenset[str]:
    value = claims.get(name)
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    names = [scope.strip() if isinstance(scope, str) else "" for scope in scopes]
    if not all(names) or len(set(names)) < len(names):
        raise InvalidToken(f"its claim {name!r} has a scope twice, or one that is not a text")
    return frozenset(names)
