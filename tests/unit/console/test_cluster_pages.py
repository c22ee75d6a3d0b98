"""The pages of the cluster and of access."""

import asyncio
import json
import re
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from ottla_broker.console.metadata_records import decode_rows
from ottla_broker.metadata.image import TOPIC_RESOURCE, TopicImage
from ottla_broker.metadata.records import (
    NO_LEADER,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_record,
)
from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.authorizer import Resource
from ottla_broker.security.client_quotas import QuotaEntity
from ottla_broker.security.scram import MECHANISMS, make_credential
from ottla_broker.security.standard_authorizer import StandardAuthorizer
from ottla_broker.wire.records import Record, encode_batch
from tests.clients.hostile_values import HOSTILE
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DescribeOnly
from tests.unit.console.console_server import MAX_PAGE_BYTES, run_console

PAGES = ("/cluster", "/cluster/departure?broker=1", "/access", "/access/why", "/access/users", "/access/quotas")
SCRAM = MECHANISMS["SCRAM-SHA-512"]


def entry(number: int, principal: str = "User:alice", name: str = "t") -> AccessControlEntry:
    """A rule that allows (odd `number`) or denies (even) to read this topic."""
    return AccessControlEntry(2, name, 3, principal, "*", 3, 3 if number % 2 else 2)


@async_test
async def test_departure_of_the_only_broker_takes_its_partitions_offline(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        (broker,) = console.broker.image.brokers
        page = (await console.get(f"/cluster/departure?broker={broker}")).text
        assert "2 partitions would be offline until the broker returns." in page
        partitions = console.broker.image.topics["t"].partitions
        before = dict(partitions)
        partitions |= {index: replace(one, leader=NO_LEADER) for index, one in before.items()}
        offline = (await console.get(f"/cluster/departure?broker={broker}")).text
        assert "would be offline" not in offline and "Every partition would keep a leader" not in offline
        assert "2 partitions with a replica on the broker are offline already." in offline
        partitions |= before
        assert (await console.get("/cluster/departure?broker=99")).status == 404
        assert (await console.get("/cluster/departure?broker=x")).status == 400
        assert "None: every partition has a leader" in (await console.get("/cluster")).text
        state = console.broker.image.topics["t"].partitions[1]
        console.broker.image.topics["t"].partitions[1] = PartitionRecord(
            state.topic, 1, (*state.replicas, 77), state.isr, state.leader
        )
        waiting = (await console.get("/cluster")).text
        assert "not in sync: 77" in waiting and "broker 77 to return" in waiting


@async_test
async def test_metadata_log_is_shown_by_offset(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        page = (await console.get("/cluster/metadata?offset=0")).text
        assert "register-broker" in page and ">topic<" in page
        assert '<p class="quiet schema">t</p>' in page
        offsets = [int(one) for one in re.findall(r'<tr><td class="number">(\d+)</td>', page)]
        assert offsets == sorted(set(offsets))
        last = (await console.get("/cluster/metadata?offset=999999")).text
        assert "Later" not in last


def test_secrets_of_the_metadata_log_are_masked() -> None:
    credential = make_credential(SCRAM, "hunter2", b"salt", 4096)
    records: list[MetadataRecord] = [
        TopicRecord("t", UUID(int=1)),
        ConfigRecord(4, "1", "listener.name.x.scram-sha-512.sasl.jaas.config", 'password="hunter2"'),
        ConfigRecord(TOPIC_RESOURCE, "t", "retention.ms", "5"),
        UserScramCredentialRecord("alice", SCRAM, credential),
    ]
    batch = encode_batch([Record(9, None, encode_record(one)) for one in records], base_offset=3)
    rows = decode_rows(batch, 4, 10)
    assert [(one.offset, one.kind) for one in rows] == [(4, "config"), (5, "config"), (6, "scram")]
    assert '"retention.ms"' in rows[1].fields
    text = " ".join(one.fields for one in rows)
    assert "hunter2" not in text
    shown, stored = (json.loads(it)["credential"] for it in (rows[2].fields, encode_record(records[3])))
    assert {name for name in stored if shown[name] != stored[name]} == {"stored_key", "server_key"}


@async_test
async def test_rules_are_searched_and_explained(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        assert "have no authorizer" in (await console.get("/access")).text
        broker = console.broker
        broker.acl_authorizer = StandardAuthorizer((), allow_if_no_acl=False)
        broker.image.acls |= {UUID(int=1): entry(1), UUID(int=2): entry(1, "User:bob", "other")}
        assert "2 rules" in (await console.get("/access")).text
        assert "One rule with “bob”" in (await console.get("/access?search=bob")).text
        assert "0 rules" in (await console.get("/access?type=group")).text
        assert (await console.get("/access?type=x")).status == 400
        why = "/access/why?principal=alice&type=topic&name=t&operation="
        allowed = (await console.get(why + "read")).text
        assert "Allowed. A rule allows it." in allowed and 'class="decides"' in allowed
        assert "Refused. No rule allows it to User:alice" in (await console.get(why + "write")).text
        assert (await console.get(why + "cluster_action")).status == 400


@async_test
async def test_users_are_listed_without_their_keys(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        credential = make_credential(SCRAM, "hunter2", b"some salt", 4096)
        console.broker.image.scram_credentials[("alice", SCRAM)] = credential
        console.broker.image.acls[UUID(int=1)] = entry(1)
        page = (await console.get("/access/users")).text
        assert "One user with SCRAM" in page and "SCRAM-SHA-512" in page and "4,096 iterations" in page
        assert credential.stored_key.hex() not in page and "some salt" not in page


@async_test
async def test_quotas_and_who_is_throttled_are_shown(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        quotas: dict[QuotaEntity, dict[str, float]] = {
            (("user", "alice"), ("client-id", None)): {"producer_byte_rate": 1000.0}
        }
        console.broker.image.client_quotas |= quotas
        console.broker.client_quotas.update(quotas)
        produce = console.broker.client_quotas.of_client("alice", "app").produce
        assert produce is not None
        now_s = asyncio.get_running_loop().time()
        produce.take(50_000, now_s)
        produce.count_throttled(2.5)
        page = (await console.get("/access/quotas")).text
        assert "user alice, client-id (default)" in page
        assert re.search(r"<td>alice</td><td>app</td><td[^>]*>1000</td><td[^>]*>1</td><td[^>]*>2.5</td>", page)
        assert "over it for" in page


@async_test
async def test_overview_counts_throttled_clients_for_users_who_may_describe_quotas(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        assert "0 now, 0 since it started" in (await console.get("/")).text
        limits = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0}
        console.broker.client_quotas.update({(("user", None),): limits})
        now_s = asyncio.get_running_loop().time()
        for user, size in (("alice", 50_000), ("bob", 1)):
            quotas = console.broker.client_quotas.of_client(user, "app")
            for quota in (quotas.produce, quotas.fetch):
                assert quota is not None
                quota.take(size, now_s)
                quota.count_throttled(2.5)
        shown = re.search(r"throttled by broker 1</dt><dd><a href=.([^>]+).>([^<]+)<", (await console.get("/")).text)
        assert shown is not None
        assert shown.groups() == ("/access/quotas", "1 now, 2 since it started")
        console.broker.authorizer = DescribeOnly()
        denied = await console.get("/")
        assert denied.status == 200 and "throttled by" not in denied.text


@pytest.mark.parametrize("path", [*PAGES, "/cluster/quorum", "/cluster/metadata"])
@async_test
async def test_pages_show_a_refusal_to_users_without_the_right(tmp_path: Path, path: str) -> None:
    async with run_console(tmp_path) as console:
        console.broker.authorizer = DescribeOnly(Resource.topic("t"))
        answer = await console.get(path)
        assert answer.status == 403
        assert "is not allowed" in answer.text


@async_test
async def test_hostile_names_are_escaped_and_pages_are_bounded(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        image = console.broker.image
        (broker,) = image.brokers
        console.broker.acl_authorizer = StandardAuthorizer((), allow_if_no_acl=False)
        for number in range(10_000):
            text = HOSTILE[number % len(HOSTILE)]
            id_, name = UUID(int=number + 1), f"{number:05d}{text}"
            state = PartitionRecord(id_, 0, (broker, 77), (broker,), broker)
            image.topics[name], image.topic_names[id_] = TopicImage(name, id_, {0: state}), name
            image.acls[id_] = replace(entry(number), principal=f"User:{name}", resource_name=text)
            image.client_quotas[(("user", name),)] = {"producer_byte_rate": 1.0}
            image.scram_credentials[(name, SCRAM)] = make_credential(SCRAM, "x", b"s", 1)
        for path in (*PAGES[:1], f"/cluster/departure?broker={broker}", *PAGES[2:]):
            page = await console.get(path)
            assert page.status == 200, path
            assert len(page.text) < MAX_PAGE_BYTES, path
            attacks = r"<(script|img|svg|iframe|base|style|math|input autofocus)\b|<[^>\"]* on\w+="
            assert not re.search(attacks, page.text.partition("<main")[2]), path
