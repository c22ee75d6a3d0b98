"""Malformed and almost correct logins are refused, and do not harm the broker.

`OTTLA_FUZZ_SECONDS` and `OTTLA_FUZZ_SEED` have the effect that `test_fuzz.py` describes.
"""

import asyncio

import pytest

from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.client_security import ClientSecurity
from tests.brokers import add_listeners, run_ottla_broker
from tests.clients.handshake_fuzz import try_handshakes
from tests.clients.secured_pair import HOST, PLAIN_MODULE
from tests.clients.test_fuzz import MOST_GROWTH_KIB, SECONDS, SEED

MIN_HANDSHAKES = 400


@pytest.mark.slow
def test_mutated_handshakes_log_nobody_in(capsys: pytest.CaptureFixture[str]) -> None:
    with run_ottla_broker(start=False) as broker:
        login = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"})["LOGIN"]
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        broker.settings |= {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_alice="right";',
            "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
            "connection.failed.authentication.delay.ms": "1",
        }
        broker.start()
        before_kib = broker.resident_memory_kib()
        results = asyncio.run(try_handshakes(HOST, login, SECONDS, SEED, MIN_HANDSHAKES))
        with capsys.disabled():
            print(f"\nseed {SEED}: {results.count} handshakes: {dict(results.ended)}")
        assert not results.served
        assert not results.hung
        assert "Traceback" not in broker.log_tail(10_000_000)
        assert broker.resident_memory_kib() - before_kib < MOST_GROWTH_KIB

        async def log_in() -> None:
            security = ClientSecurity("SASL_PLAINTEXT").with_login("PLAIN", "alice", "right")
            (await open_channel(HOST, login, "after", security=security)).close()

        asyncio.run(log_in())
