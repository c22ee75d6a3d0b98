"""`python -m bench.access`: cost and timing of logins, and cost of access rules.

- Processor time of the broker for one login, by mechanism.
- Whether a login that fails takes as long for a user that does not exist as for one that does: the
  share of pairs of failures in which the unknown user's took longer, with two standard errors. A
  share of 0.5 means that clients cannot find out which users exist.
- Processor time of the broker for a small produce request: without an authorizer, and with 1,000
  rules, where a prefixed rule allows the request.
- Time of an authorizer with 100,000 rules: for the first decision about a topic, for a cached one,
  for whether a user may write to at least one topic (authorizeByResourceType), and for the removal
  of a rule.
"""

import argparse
import asyncio
import hashlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.static.primitive import i8, i32
from rich.console import Console
from rich.table import Table

from bench.plain_requests import encode_batch, produce_request, wait_for_first_ack
from ottla_broker.security.acls import AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import ScramMechanism
from ottla_broker.security.standard_authorizer import StandardAuthorizer
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import KafkaError
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.ports import free_port

HOST: Final = "127.0.0.1"
USER, PASSWORD, TOPIC = "alice", "a password", "orders.small"
ITERATIONS: Final = 4096
RULES: Final = 1000
MANY_RULES: Final = 100_000
MODULES: Final = "org.apache.kafka.common.security"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CORRELATION_ID: Final = 7  # of `produce_request`


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.access", description=__doc__)
    parser.add_argument("--logins", type=int, default=300, help="logins of each mechanism")
    parser.add_argument("--pairs", type=int, default=1000, help="pairs of failed logins")
    parser.add_argument("--requests", type=int, default=20_000, help="produce requests")
    options = parser.parse_args()
    table = Table(box=None)
    for heading in ("what", "value", "unit"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    with run_secured_broker() as (broker, port):
        for mechanism in MECHANISMS:
            cpu_s = asyncio.run(measure_logins(broker, port, mechanism, options.logins))
            table.add_row(f"login, {mechanism}", f"{cpu_s * 1e6:,.0f}", "µs of broker CPU")
        for mechanism in MECHANISMS:
            share, margin = asyncio.run(compare_failures(port, mechanism, options.pairs))
            table.add_row(f"failed login, {mechanism}: unknown user slower", f"{share:.3f}", f"of pairs, ±{margin:.3f}")
        login = login_of(USER, PASSWORD, "SCRAM-SHA-512")
        cpu_s = asyncio.run(measure_produce(broker, port, login, options.requests))
        table.add_row(f"produce 100 B, {RULES:,} rules", f"{cpu_s * 1e6:.2f}", "µs of broker CPU")
    with run_ottla_broker() as broker:
        wait_for_first_ack(broker.port, TOPIC, 30)
        cpu_s = asyncio.run(measure_produce(broker, broker.port, UNSECURED, options.requests))
        table.add_row("produce 100 B, no authorizer", f"{cpu_s * 1e6:.2f}", "µs of broker CPU")
    for what, duration_s in measure_decisions().items():
        table.add_row(f"{what}, {MANY_RULES:,} rules", f"{duration_s * 1e6:,.2f}", "µs")
    Console(width=100).print(table)


def measure_decisions() -> dict[str, float]:
    """Seconds of each kind of decision of an authorizer, and of the removal of a rule, by label.
    The authorizer has MANY_RULES rules of 1,000 users, half of them with prefixes.
    """
    patterns = (PatternType.LITERAL, PatternType.PREFIXED)
    entries = {
        UUID(int=number): AccessControlEntry(
            ResourceType.topic,
            f"team-{number}.",
            patterns[number % 2],
            f"User:user-{number % 1000}",
            "*",
            Operation.write,
            Permission.ALLOW,
        )
        for number in range(MANY_RULES)
    }
    authorizer, user = StandardAuthorizer((), allow_if_no_acl=False), Principal("User", "user-77")
    topics = [Resource.topic(f"team-{number}.orders") for number in range(10_000)]

    def decide(some: list[Resource]) -> None:
        for topic in some:
            authorizer.allows(user, HOST, Operation.write, topic)

    def remove_rule() -> None:
        authorizer.update([UUID(int=1)], {})

    authorizer.update(entries, entries)
    return {
        "first decision about a topic": seconds_of(lambda: decide(topics)) / len(topics),
        "cached decision": seconds_of(lambda: decide(topics[:1] * len(topics))) / len(topics),
        "first decision whether any topic is allowed": seconds_of(
            lambda: authorizer.allows_any(user, HOST, Operation.write, ResourceType.topic)
        ),
        "removal of a rule": seconds_of(remove_rule),
    }


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def run_secured_broker() -> Iterator[tuple[BrokerProcess, int]]:
    """A broker with the user and the rules, and the port where users log in."""
    with run_ottla_broker(start=False) as broker:
        port = free_port()
        scram = {
            f"listener.name.login.{it.lower()}.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;"
            for it in MECHANISMS[1:]
        }
        broker.settings |= scram | {
            "listeners": f"PLAINTEXT://{HOST}:{broker.port},LOGIN://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.login.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            "connection.failed.authentication.delay.ms": "0",
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        broker.start()
        wait_for_first_ack(broker.port, TOPIC, 30)
        asyncio.run(create_user_and_rules(broker.port))
        yield broker, port


async def create_user_and_rules(port: int) -> None:
    admin = await open_channel(HOST, port, "bench")
    hashes = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}
    credentials = tuple(
        ScramCredentialUpsertion(
            name=USER,
            mechanism=i8(mechanism),
            iterations=i32(ITERATIONS),
            salt=b"salt",
            salted_password=hashlib.pbkdf2_hmac(name, PASSWORD.encode(), b"salt", ITERATIONS),
        )
        for mechanism, name in hashes.items()
    )
    await admin.send(AlterUserScramCredentialsRequest(deletions=(), upsertions=credentials))
    others = [prefix_rule(f"other-{number}.", f"User:user-{number % 100}") for number in range(RULES - 1)]
    await admin.send(CreateAclsRequest(creations=(prefix_rule("orders.", f"User:{USER}"), *others)))
    admin.close()


def prefix_rule(prefix: str, principal: str) -> AclCreation:
    """A rule that allows the principal to write to topics whose names begin with the prefix."""
    return AclCreation(
        resource_type=i8(ResourceType.topic),
        resource_name=prefix,
        resource_pattern_type=i8(PatternType.PREFIXED),
        principal=principal,
        host="*",
        operation=i8(Operation.write),
        permission_type=i8(Permission.ALLOW),
    )


def login_of(user: str, password: str, mechanism: str) -> ClientSecurity:
    return ClientSecurity("SASL_PLAINTEXT").with_login(mechanism, user, password)


async def measure_logins(broker: BrokerProcess, port: int, mechanism: str, count: int) -> float:
    """Processor seconds of the broker for one connection with a login."""
    login, before = login_of(USER, PASSWORD, mechanism), broker.cpu_s()
    for _ in range(count):
        (await open_channel(HOST, port, "bench", security=login)).close()
    return (broker.cpu_s() - before) / count


async def compare_failures(port: int, mechanism: str, pairs: int) -> tuple[float, float]:
    """The share of pairs in which the unknown user's failure took longer, and two standard errors
    of it."""
    slower = [
        float(await failure_s(port, mechanism, "nobody") > await failure_s(port, mechanism, USER))
        if number % 2
        else float(await failure_s(port, mechanism, USER) < await failure_s(port, mechanism, "nobody"))
        for number in range(pairs)
    ]
    return statistics.fmean(slower), 2 * 0.5 / math.sqrt(pairs)


async def failure_s(port: int, mechanism: str, user: str) -> float:
    """Seconds until a login with a wrong password has failed."""
    started = time.perf_counter()
    try:
        channel = await open_channel(HOST, port, "bench", security=login_of(user, "a wrong one", mechanism))
    except KafkaError:
        return time.perf_counter() - started
    channel.close()
    raise AssertionError(f"{user} has logged in with a wrong password")


async def measure_produce(broker: BrokerProcess, port: int, login: ClientSecurity, count: int) -> float:
    """Processor seconds of the broker for one request with a batch of one record."""
    channel = await open_channel(HOST, port, "bench", security=login)
    request = produce_request(TOPIC, encode_batch(bytes(100)))
    await send(channel, request, 500)
    before = broker.cpu_s()
    await send(channel, request, count)
    used_s = broker.cpu_s() - before
    channel.close()
    return used_s / count


async def send(channel: Channel, request: bytes, count: int) -> None:
    """Sends the request `count` times, each after the response to the last one."""
    for _ in range(count):
        await channel.send_frame(CORRELATION_ID, [request])


if __name__ == "__main__":
    main()
