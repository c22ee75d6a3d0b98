"""Hashes, message authentication codes and their comparison.

Python's modules for them (hashlib, hmac) load OpenSSL's hashes: 0.8 MiB that a broker without
logins does not need. So they are imported with the first call. `digest`: a name of hashlib, such as
"sha256".
"""


def compute_hash(digest: str, data: bytes) -> bytes:
    import hashlib

    return hashlib.new(digest, data).digest()


def compute_blake2b(data: bytes, size: int) -> bytes:
    """`size`: of the result, in bytes (1 to 64)."""
    from hashlib import blake2b

    return blake2b(data, digest_size=size).digest()


def compute_shake256(data: bytes, size: int) -> bytes:
    """`size`: of the result, in bytes."""
    import hashlib

    return hashlib.shake_256(data).digest(size)


def compute_hmac(digest: str, key: bytes, message: bytes) -> bytes:
    import hmac

    return hmac.digest(key, message, digest)


def derive_key(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 (RFC 8018), with a result as long as that of the hash."""
    import hashlib

    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def are_equal(one: bytes, other: bytes) -> bool:
    """Takes the same time wherever they differ."""
    import hmac

    return hmac.compare_digest(one, other)
