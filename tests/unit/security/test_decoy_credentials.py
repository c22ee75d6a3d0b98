"""Logins as users that do not exist."""

from ottla_broker.security.scram import DEFAULT_SHAPE, CredentialShape, ScramMechanism, decoy_credential


def test_credential_of_an_unknown_user_looks_like_those_of_users_that_exist() -> None:
    shapes = (CredentialShape(16, 4096), CredentialShape(64, 8192))
    decoys = [decoy_credential(ScramMechanism.SHA_512, f"user-{number}", b"secret", shapes) for number in range(50)]
    assert {(len(it.salt), it.iterations) for it in decoys} == set(shapes)
    assert decoys == [
        decoy_credential(ScramMechanism.SHA_512, f"user-{number}", b"secret", shapes) for number in range(50)
    ]
    alone = decoy_credential(ScramMechanism.SHA_256, "somebody", b"secret")
    assert (len(alone.salt), alone.iterations) == DEFAULT_SHAPE
