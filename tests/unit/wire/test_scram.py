"""SCRAM with the examples of its RFCs, and with servers that cannot be trusted."""

import pytest

from ottla_broker.wire.sasl import ScramClient, ScramClientError

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def client(name: str = "user") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", name, "pencil", NONCE)


def test_messages_are_those_of_the_exchange_in_rfc_7677() -> None:
    scram = client()
    assert scram.first_message == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final_message(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_separators_in_the_name_are_escaped() -> None:
    assert client("a,b=c").first_message == b"n,,n=a=2Cb=3Dc,r=" + NONCE.encode()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"r=somebodyelse,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not extend"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "does not extend"),
        (FIRST.replace(b"4096", b"1"), "minimum is 4096"),
        (b"e=unknown-user", "unknown-user"),
        (b"hello", "is not a SCRAM message"),
    ],
)
def test_invalid_server_messages_are_rejected(answer: bytes, why: str) -> None:
    with pytest.raises(ScramClientError, match=why):
        client().final_message(answer)


def test_server_without_the_password_is_detected() -> None:
    scram = client()
    scram.final_message(FIRST)
    with pytest.raises(ScramClientError, match="does not know the password"):
        scram.verify(b"v=AAAA")
    with pytest.raises(ScramClientError, match="invalid-proof"):
        scram.verify(b"e=invalid-proof")
