"""Which SCRAM credentials a mirror copies, and their text form."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.mirroring.credential_sync import CredentialKey, plan_credential_sync
from ottla_broker.security.scram import (
    ScramCredential,
    ScramMechanism,
    format_credential,
    make_credential,
    parse_credential,
)

SHA = ScramMechanism.SHA_256
OLD, NEW = (make_credential(SHA, password, b"salt", 4096) for password in ("old", "new"))
KEYS = st.sampled_from([("alice", 1), ("bob", 1), ("admin", 2), ("other", 1)])
CREDENTIALS = st.dictionaries(KEYS, st.sampled_from([OLD, NEW]))
SUPER_USERS = ("User:admin",)
PATTERNS = ("*", "!other")


def matching(found: dict[CredentialKey, ScramCredential]) -> dict[CredentialKey, ScramCredential]:
    return {key: it for key, it in found.items() if key[0] != "other"}


@given(CREDENTIALS.map(matching), CREDENTIALS, st.dictionaries(KEYS, st.sampled_from(["west", "east"])))
def test_own_credentials_follow_the_source_and_others_stay(
    at_source: dict[CredentialKey, ScramCredential],
    here: dict[CredentialKey, ScramCredential],
    owners: dict[CredentialKey, str],
) -> None:
    owners = {key: it for key, it in owners.items() if key in here and key[0] != "admin"}
    changes = plan_credential_sync("west", PATTERNS, at_source, here, owners, SUPER_USERS)
    after = {key: it for key, it in {**here, **changes.to_set}.items() if key not in changes.to_remove}
    owned = {**owners, **dict.fromkeys(changes.to_set, "west")}
    for key in {*here, *at_source}:
        if key[0] == "admin" or (key in here and owners.get(key) != "west"):
            assert after.get(key) == here.get(key)
        elif key[0] == "other":
            assert after[key] == here[key]
        else:
            assert after.get(key) == at_source.get(key)
    assert {name for name, _ in at_source} - set(changes.skipped) <= {name for name, _ in after}
    owners_after = {key: it for key, it in owned.items() if key in after}
    assert not plan_credential_sync("west", PATTERNS, at_source, after, owners_after, SUPER_USERS)


@given(st.binary(min_size=1, max_size=40), st.integers(4096, 16384), st.sampled_from(list(ScramMechanism)))
def test_text_form_holds_the_whole_credential(salt: bytes, iterations: int, mechanism: ScramMechanism) -> None:
    credential = ScramCredential(salt, OLD.stored_key * 2, OLD.server_key * 2, iterations)
    if mechanism is SHA:
        credential = ScramCredential(salt, OLD.stored_key, OLD.server_key, iterations)
    assert parse_credential(mechanism, format_credential(credential)) == credential
