"""Spark's executors log in with delegation tokens that Spark's Kafka connector obtains."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.ports import free_port
from tests.spark.conftest import Topics

MODULES = "org.apache.kafka.common.security"
RECORDS = 100


@pytest.fixture
def login_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def secured(broker_kind: str, login_address: str) -> Iterator[BrokerProcess]:
    """A broker whose clients without a login are super users. Alice has a password."""
    if broker_kind == "kafka":
        pytest.skip("tests/clients/test_delegation_tokens.py runs against Apache Kafka")
    with run_ottla_broker(start=False) as broker:
        broker.settings |= {
            "listeners": f"PLAINTEXT://{broker.bootstrap},LOGIN://{login_address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.login.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_alice="alice-secret";'
            ),
            "listener.name.login.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "delegation.token.secret.key": "a secret of the brokers",
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        broker.start()
        yield broker


@pytest.mark.slow
def test_executor_with_a_token_reads_what_its_owner_may_until_the_token_expires(
    secured: BrokerProcess, login_address: str, tmp_path: Path
) -> None:
    topics = Topics(secured.bootstrap)
    topics.create("numbers", partitions=2)
    topics.write("numbers", *range(RECORDS))
    allow_alice_to_read(topics.admin, "numbers")
    program = [sys.executable, "-m", "tests.spark.token_driver", login_address, "numbers", "alice", "alice-secret"]
    done = subprocess.run([*program, str(tmp_path)], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout, done.stderr
    first = json.loads(done.stdout.splitlines()[0])
    assert (first["records"], first["processes"]) == (RECORDS, 2)
    assert f"{first['token']} for User:alice" in secured.log_tail(100_000)
    assert "SaslAuthenticationException: Authentication failed" in done.stderr
    assert "with SASL mechanism SCRAM-SHA-512" in done.stderr
    assert done.returncode == 1


def allow_alice_to_read(admin: AdminClient, topic: str) -> None:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rule = AclBinding(ResourceType.TOPIC, topic, literal, "User:alice", "*", AclOperation.READ, allow)
    for made in admin.create_acls([rule]).values():
        made.result(30)
