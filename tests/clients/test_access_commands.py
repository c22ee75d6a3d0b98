"""`ottla users`, `ottla acls` and `ottla quotas`; what a rule allows is tried with librdkafka."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess, add_listeners
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.ottla_command import run_ottla
from tests.waiting import eventually

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class SaslBroker:
    """`broker.bootstrap` is a PLAINTEXT listener, whose clients are super users. `sasl` is one
    with SCRAM.
    """

    broker: BrokerProcess
    sasl: str

    def ottla(
        self, *arguments: str, config: Path | None = None, stdin_text: str = "", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Runs `ottla` as super user or, with a file of client properties `config`, on the listener
        with SCRAM.
        """
        bootstrap = self.sasl if config else self.broker.bootstrap
        how = ["--bootstrap", bootstrap, *(["--command-config", str(config)] if config else [])]
        return run_ottla(*arguments, *how, stdin=stdin_text, variables=variables)

    def login(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def secured(new_broker: NewBroker) -> Iterator[SaslBroker]:
    with new_broker(start=False) as broker:
        if broker.kind == "kafka":
            pytest.skip("Apache Kafka needs another set of listeners; the commands send the APIs of test_sasl.py")
        ports = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"})
        broker.settings |= {
            "listener.name.login.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        broker.start()
        yield SaslBroker(broker, f"127.0.0.1:{ports['LOGIN']}")


def test_user_with_a_rule_may_do_what_the_rule_says_and_nothing_else(secured: SaslBroker, name: str) -> None:
    rd.create_topic(secured.broker.bootstrap, f"{name}.orders", 1)
    rd.create_topic(secured.broker.bootstrap, f"{name}.other", 1)
    done = secured.ottla("users", "create", "ann", "--password-env", "PW", PW="s,e=cret")
    assert (done.returncode, done.stdout) == (0, "user ann created for SCRAM-SHA-512\n"), done.stderr
    done = secured.ottla("acls", "add", "-p", "ann", "--allow", "write", "--topic", f"{name}.or*")
    assert done.stdout == f"rule added: allow Write on topic {name}.or* to User:ann\n", done.stderr
    login = secured.login("ann", "s,e=cret")
    assert rd.produce_one(login, f"{name}.orders") is None
    refused = rd.produce_one(login, f"{name}.other")
    assert refused is not None and refused.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_explain_names_the_rule_that_decides(secured: SaslBroker, name: str) -> None:
    secured.ottla("acls", "add", "-p", "bea", "--allow", "read", "--topic", f"{name}*", "--host", "10.0.0.1")
    secured.ottla("acls", "add", "-p", "bea", "--deny", "all", "--topic", f"{name}.secret")

    def explain(topic: str, operation: str = "read") -> tuple[int, str]:
        arguments = ("--operation", operation, "--topic", topic, "--host", "10.0.0.1", "-o", "json")
        done = secured.ottla("acls", "explain", "-p", "bea", *arguments)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["reason"]

    assert explain(f"{name}.orders", "describe") == (
        0,
        f"rule: allow Read on topic {name}* to User:bea from 10.0.0.1",
    )
    assert explain(f"{name}.secret") == (1, f"rule: deny All on topic {name}.secret to User:bea")
    code, reason = explain(f"{name}.orders", "write")
    assert (code, "no rule that matches the resource allows" in reason) == (1, True)
    assert explain("unheard-of") == (1, "no rule matches the resource")
    done = secured.ottla("acls", "explain", "-p", "ANONYMOUS", "--operation", "alter", "--cluster")
    assert (done.returncode, "is one of super.users" in done.stdout) == (0, True)


def test_removed_rules_are_named_and_gone(secured: SaslBroker, name: str) -> None:
    for topic in (f"{name}.a", f"{name}.b"):
        secured.ottla("acls", "add", "-p", "cleo", "--allow", "read,write", "--topic", topic)
    done = secured.ottla("acls", "remove", "-p", "cleo", "--topic", f"{name}.a", "--yes")
    assert done.stdout.splitlines() == [
        f"rule removed: allow Read on topic {name}.a to User:cleo",
        f"rule removed: allow Write on topic {name}.a to User:cleo",
    ]
    left = json.loads(secured.ottla("acls", "list", "-p", "cleo", "-o", "json").stdout)
    assert {(it["name"], it["operation"]) for it in left} == {(f"{name}.b", "Read"), (f"{name}.b", "Write")}
    assert secured.ottla("acls", "list", "--topic", f"{name}.b", "--matching").stdout.count("User:cleo") == 2


def test_password_changes_and_the_user_is_deleted(secured: SaslBroker, tmp_path: Path) -> None:
    both = [part for it in MECHANISMS for part in ("--mechanism", it)]
    secured.ottla("users", "create", "dan", *both, "--password-file", "-", stdin_text="first\n")
    again = secured.ottla("users", "create", "dan", "--password-file", "-", stdin_text="other\n")
    assert (again.returncode, "change it with `ottla users alter`" in again.stderr) == (1, True)
    (tmp_path / "password").write_text("second\n")
    changed = secured.ottla("users", "alter", "dan", "--password-file", str(tmp_path / "password"))
    assert changed.stdout == "password of user dan changed for SCRAM-SHA-256, SCRAM-SHA-512\n", changed.stderr
    config = tmp_path / "dan.properties"

    def list_topics(password: str, mechanism: str) -> "subprocess.CompletedProcess[str]":
        config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={LOGIN_MODULE} required username="dan" password="{password}";\n'
        )
        return secured.ottla("topics", "list", config=config)

    for mechanism in MECHANISMS:
        assert list_topics("second", mechanism).returncode == 0
        refused = list_topics("first", mechanism)
        assert (refused.returncode, refused.stdout) == (1, ""), refused.stderr
        (line,) = refused.stderr.splitlines()
        assert line.startswith("ottla: ") and "Authentication failed" in line
    done = secured.ottla("users", "delete", "dan", "--mechanism", MECHANISMS[0], "--yes")
    assert done.stdout == f"user dan: {MECHANISMS[0]} deleted, {MECHANISMS[1]} kept\n"
    rows = json.loads(secured.ottla("users", "list", "-o", "json").stdout)
    assert [it["mechanism"] for it in rows if it["user"] == "dan"] == [MECHANISMS[1]]
    secured.ottla("acls", "add", "-p", "dan", "--allow", "describe", "--cluster")
    done = secured.ottla("users", "delete", "dan", "--acls", "--yes")
    assert done.stdout == "user dan deleted\n1 access rule of user dan removed\n"
    eventually(lambda: list_topics("second", MECHANISMS[1]).returncode != 0, within_s=10)
    assert secured.ottla("users", "delete", "dan", "--yes").returncode == 3


def test_bad_input_is_a_usage_error(secured: SaslBroker) -> None:
    for arguments, expected in (
        (("acls", "add", "-p", "x", "--allow", "fly", "--topic", "t"), "allowed: All, Read, Write"),
        (("acls", "add", "-p", "x", "--allow", "read"), "name the resource of the rule"),
        (("acls", "add", "-p", "x", "--topic", "t"), "give --allow or --deny"),
        (("acls", "remove", "--yes"), "name the rules: --principal"),
        (("users", "create", "x"), "no password: give --password-file"),
        (("users", "create", "x", "--password-env", "NOT_SET"), "environment variable NOT_SET has no password"),
        (("users", "create", "x", "--mechanism", "PLAIN", "--password-env", "PATH"), "allowed: SCRAM-SHA-256"),
    ):
        done = secured.ottla(*arguments, stdin_text="")
        flat = " ".join(done.stderr.replace("│", " ").split())
        assert (done.returncode, expected in flat) == (2, True), (arguments, done.stderr)


def test_commands_say_that_brokers_have_no_authorizer(broker: BrokerProcess) -> None:
    def acls(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_ottla("acls", *arguments, "--bootstrap", broker.bootstrap)

    listed = acls("list")
    assert (listed.returncode, "No Authorizer is configured" in listed.stderr) == (1, True)
    explained = acls("explain", "-p", "x", "--operation", "read", "--topic", "t")
    assert (explained.returncode, "every request is allowed" in explained.stdout) == (0, True)


def test_quotas_are_set_listed_and_removed(secured: SaslBroker) -> None:
    def list_quotas(*filters: str) -> dict[str, float]:
        rows = json.loads(secured.ottla("quotas", "list", *filters, "-o", "json").stdout)
        return {f"{it['entity']}: {it['quota']}": it["value"] for it in rows}

    both = ("--user", "eve", "--client-id", "app")
    done = secured.ottla("quotas", "alter", "producer_byte_rate=1000", "consumer_byte_rate=2000", "--user", "eve")
    assert (done.returncode, done.stdout) == (0, "quotas of user eve altered\n"), done.stderr
    secured.ottla("quotas", "alter", "request_percentage=50", *both)
    secured.ottla("quotas", "alter", "producer_byte_rate=10", "--user", "<default>")
    assert list_quotas("--user", "eve") == {
        "client-id app, user eve: request_percentage": 50,
        "user eve: consumer_byte_rate": 2000,
        "user eve: producer_byte_rate": 1000,
    }
    assert list_quotas()["user <default>: producer_byte_rate"] == 10
    secured.ottla("quotas", "alter", "--unset", "consumer_byte_rate", "--user", "eve")
    assert "user eve: consumer_byte_rate" not in list_quotas()
    refused = secured.ottla("quotas", "alter", "no_such_rate=1", "--user", "eve")
    assert (refused.returncode, "no_such_rate" in refused.stderr) == (1, True), refused.stderr
    for arguments in (("x=1",), ("x=y", "--user", "eve"), ("x=1", "--ip", "10.0.0.1", "--user", "eve")):
        assert secured.ottla("quotas", "alter", *arguments).returncode == 2
