"""The operator's reconciliation of Users with a real broker as a process: logins, access rules,
their drift, and what a deleted User leaves behind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.scram import ScramMechanism
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import KafkaError
from ottla_operator.cli.command_config import read_security
from ottla_operator.kafka import acls, quotas, scram, topics
from ottla_operator.kafka.client import connect
from ottla_operator.plan.acl_patterns import describe_entry
from ottla_operator.reconcile.users import UserReconciler
from ottla_operator.reconcile.watch_cache import Key
from tests.e2e.process_kubelet import KEY, ProcessKubelet, connect_to_brokers, run_with_cluster

LISTENERS = [{"name": "clients", "port": 9094, "authentication": "SCRAM"}]
RULES = [{"allow": ["Read", "Write"], "topic": "orders*"}, {"deny": ["Write"], "topic": "orders.archive"}]


def run_secured(
    folder: Path, scenario: Callable[[ProcessKubelet], Awaitable[None]], *, authorization: str = "ACL"
) -> None:
    run_with_cluster(folder, 1, scenario, listeners=LISTENERS, authorization={"type": authorization})


async def rules_of(kubelet: ProcessKubelet, user: str) -> set[str]:
    async with connect_to_brokers(kubelet) as client:
        return set(map(describe_entry, await acls.describe_acls(client, acls.filter_for_principal(f"User:{user}"))))


async def can_log_in(kubelet: ProcessKubelet, password: str, user: str = "alice", mechanism: str = "512") -> bool:
    """True if the user can log in at the listener for clients."""
    (pod, *_) = kubelet.api.of("Pod").values()
    security = ClientSecurity("SASL_PLAINTEXT", mechanism=f"SCRAM-SHA-{mechanism}", username=user, password=password)
    try:
        async with connect(f"{pod['status']['podIP']}:9094", security=security, timeout_s=10) as client:
            await topics.list_topics(client)
    except KafkaError:
        return False
    return True


def test_user_gets_rules_and_a_secret_for_its_login_and_is_written_once(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_user("alice", acls=RULES)
        await kubelet.wait_until_ready("User", "alice")
        secret = kubelet.secret("alice")
        assert kubelet.status("User", "alice")["secret"] == "alice"
        assert secret["username"] == "alice"
        assert secret["bootstrap.servers"] == "demo-clients-bootstrap.events.svc:9094"
        file = tmp_path / "client.properties"
        file.write_text(secret["client.properties"])
        assert read_security(file).password == secret["password"]
        assert await can_log_in(kubelet, secret["password"])
        assert not await can_log_in(kubelet, "wrong")
        assert await rules_of(kubelet, "alice") == {
            "allow Read on topic orders* to User:alice",
            "allow Write on topic orders* to User:alice",
            "deny Write on topic orders.archive to User:alice",
        }
        before = list(kubelet.api.writes)
        for _ in range(3):
            await kubelet.reconcile()
        assert kubelet.api.writes == before, "converged objects are not written"
        shown = repr([kubelet.api.of(kind) for kind in ("User", "Cluster", "ConfigMap")]) + repr(kubelet.events)
        assert secret["password"] not in shown

    run_secured(tmp_path, scenario)


def test_changes_by_others_on_the_brokers_are_reported_and_reverted(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_user("alice", acls=RULES)
        await kubelet.wait_until_ready("User", "alice")
        password, expected = kubelet.secret("alice")["password"], await rules_of(kubelet, "alice")
        async with connect_to_brokers(kubelet) as client:
            await acls.delete_acls(client, [acls.filter_for_principal("User:alice")])
            theirs = AccessControlEntry(2, "payroll", 3, "User:alice", "*", 3, 3)
            await acls.create_acls(client, [theirs])
            mechanism = ScramMechanism.SHA_512
            await scram.alter_scram_users(client, [scram.RemoveCredential("alice", mechanism)])
        await kubelet.wait_until(lambda: any(it.startswith("DriftCorrected: ") for it in kubelet.events))
        (event,) = [it for it in kubelet.events if it.startswith("DriftCorrected: ")]
        assert "1 rule removed: allow Read on topic payroll to User:alice" in event
        assert await rules_of(kubelet, "alice") == expected
        assert await can_log_in(kubelet, password), "the password is the one that clients have"

    run_secured(tmp_path, scenario)


def test_password_follows_its_sources(tmp_path: Path) -> None:
    """The sources are a Secret that alice provides, and the Secret of bob's generated password,
    which is edited and deleted.
    """

    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_secret("from", pw="first")
        kubelet.put_user(
            "alice", authentication={"type": "SCRAM-SHA-256", "passwordFrom": {"name": "from", "key": "pw"}}
        )
        kubelet.put_user("bob", secretName="bobs")
        for name in ("alice", "bob"):
            await kubelet.wait_until_ready("User", name)
        assert await can_log_in(kubelet, "first", mechanism="256")
        kubelet.put_secret("from", pw="second")
        generated = kubelet.secret("bobs")["password"]
        edited = kubelet.api.of("Secret")["bobs"]
        kubelet.api.objects["Secret", "events", "bobs"]["data"] = {**edited["data"], "password": "ZWRpdGVk"}
        kubelet.controller.users.secrets.recheck_s = 0.0
        await kubelet.reconcile()
        assert await can_log_in(kubelet, "second", mechanism="256")
        assert not await can_log_in(kubelet, "first", mechanism="256")
        assert await can_log_in(kubelet, "edited", "bob")
        assert not await can_log_in(kubelet, generated, "bob")
        assert 'password="edited"' in kubelet.secret("bobs")["client.properties"]
        del kubelet.api.objects["Secret", "events", "bobs"]
        await kubelet.reconcile()
        assert await can_log_in(kubelet, kubelet.secret("bobs")["password"], "bob")
        assert not await can_log_in(kubelet, "edited", "bob")
        kubelet.edit_spec("User", "alice", authentication={"type": "TLS"})
        await kubelet.wait_until(lambda: kubelet.condition("User", "alice").get("reason") == "AuthorityNotFound")

    run_secured(tmp_path, scenario)


def test_deleted_user_is_revoked_also_by_an_operator_that_did_not_see_its_deletion(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        for name in ("alice", "bob", "carol"):
            kubelet.put_user(name, acls=RULES)
            await kubelet.wait_until_ready("User", name)
        passwords = {name: kubelet.secret(name)["password"] for name in ("alice", "bob", "carol")}
        gone = kubelet.api.objects.pop(("User", "events", "alice"))
        assert "finalizers" not in gone["metadata"]
        new_operator = ProcessKubelet(kubelet.folder, api=kubelet.api)  # its watches have shown no User yet
        new_operator.controller.update(kubelet.api.objects["Cluster", "events", "demo"])
        await new_operator.controller.users.reconcile(KEY)
        assert not await can_log_in(kubelet, passwords["alice"])
        assert await rules_of(kubelet, "alice") == set()
        assert await can_log_in(kubelet, passwords["bob"], "bob"), "bob's User exists"
        assert any(it.startswith("UserRevoked: ") and "alice" in it for it in new_operator.events)
        kubelet.controller.update(gone, is_deleted=True)
        kubelet.controller.update(kubelet.api.objects.pop(("User", "events", "bob")), is_deleted=True)
        terminating = kubelet.api.objects["User", "events", "carol"]
        terminating["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
        await kubelet.reconcile()
        for name in ("bob", "carol"):
            assert not await can_log_in(kubelet, passwords[name], name)
            assert await rules_of(kubelet, name) == set()
        assert await read_user_records_of_cluster(kubelet) == {}

    run_secured(tmp_path, scenario)


async def read_user_records_of_cluster(kubelet: ProcessKubelet) -> object:
    users: UserReconciler = kubelet.controller.users
    return await users.platform.read_user_records(Key("events", "demo"))


def test_user_name_belongs_to_the_older_of_two_resources_and_survives_the_younger(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_user("old", userName="shared", acls=RULES)
        kubelet.put_user("late", userName="shared")["metadata"]["creationTimestamp"] = "2026-12-01T00:00:00Z"
        await kubelet.wait_until_ready("User", "old")
        await kubelet.wait_until(lambda: kubelet.condition("User", "late").get("reason") == "NameConflict")
        password = kubelet.secret("old")["password"]
        kubelet.controller.update(kubelet.api.objects.pop(("User", "events", "late")), is_deleted=True)
        await kubelet.reconcile()
        assert await can_log_in(kubelet, password, "shared")
        assert len(await rules_of(kubelet, "shared")) == 3

    run_secured(tmp_path, scenario)


def test_secret_of_another_owner_is_not_overwritten(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_secret("alice", password="theirs")
        kubelet.put_user("alice")
        await kubelet.wait_until(lambda: kubelet.condition("User", "alice").get("reason") == "NameConflict")
        assert kubelet.secret("alice") == {"password": "theirs"}
        assert not await can_log_in(kubelet, "theirs")

    run_secured(tmp_path, scenario)


def test_rules_without_authorization_are_reported_and_applied_once_there_is_one(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_user("alice", acls=RULES)
        await kubelet.wait_until(lambda: kubelet.condition("User", "alice").get("reason") == "AuthorizationDisabled")
        assert await can_log_in(kubelet, kubelet.secret("alice")["password"])
        kubelet.edit_spec("Cluster", "demo", authorization={"type": "ACL"})
        await kubelet.wait_until_ready()
        await kubelet.wait_until_ready("User", "alice")
        assert len(await rules_of(kubelet, "alice")) == 3

    run_secured(tmp_path, scenario, authorization="None")


def test_quotas_follow_the_spec_and_are_removed_with_the_user(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        async def quotas_of_alice() -> dict[str, float]:
            async with connect_to_brokers(kubelet) as client:
                return (await quotas.describe_user_quotas(client) or {}).get("alice", {})

        kubelet.put_user("alice", quotas={"producerByteRate": 1000, "requestPercentage": 50})
        await kubelet.wait_until_ready("User", "alice")
        assert await quotas_of_alice() == {"producer_byte_rate": 1000, "request_percentage": 50}
        kubelet.edit_spec("User", "alice", quotas={"producerByteRate": 2000})
        await kubelet.wait_until_ready("User", "alice")
        assert await quotas_of_alice() == {"producer_byte_rate": 2000}
        kubelet.controller.update(kubelet.api.objects.pop(("User", "events", "alice")), is_deleted=True)
        await kubelet.reconcile()
        assert await quotas_of_alice() == {}

    run_secured(tmp_path, scenario)


def test_rotation_with_overlap_fails_no_login_of_a_client_that_reconnects(tmp_path: Path) -> None:
    """The client connects with the Secret that it read before its previous connection, as if it had
    read the Secret just before a rotation.
    """

    async def scenario(kubelet: ProcessKubelet) -> None:
        authentication = {"type": "SCRAM-SHA-512", "overlap": "2s"}
        kubelet.put_user("alice", authentication=authentication)
        await kubelet.wait_until_ready("User", "alice")
        first, stop, logins = kubelet.secret("alice"), asyncio.Event(), list[tuple[str, bool]]()

        async def reconnect() -> None:
            known = first
            while not stop.is_set():
                secret, known = known, kubelet.secret("alice")
                mechanism = secret["sasl.mechanism"].removeprefix("SCRAM-SHA-")
                logins.append((mechanism, await can_log_in(kubelet, secret["password"], mechanism=mechanism)))

        client = asyncio.create_task(reconnect())
        kubelet.edit_spec("User", "alice", authentication={**authentication, "type": "SCRAM-SHA-256"})
        await kubelet.wait_until_ready("User", "alice")
        assert "previousCredentialUntil" in kubelet.status("User", "alice")
        assert await can_log_in(kubelet, first["password"])
        await kubelet.wait_until(lambda: [it for it, _ in logins].count("256") > 3)
        await kubelet.wait_until(lambda: "previousCredentialUntil" not in kubelet.status("User", "alice"))
        stop.set()
        await client
        assert {it for it, _ in logins} == {"256", "512"}
        assert all(succeeded for _, succeeded in logins), logins
        assert not await can_log_in(kubelet, first["password"]), "the previous password is gone"
        second = kubelet.secret("alice")
        assert second["password"] != first["password"]
        assert await can_log_in(kubelet, second["password"], mechanism="256")
        assert not any(it.startswith("DriftCorrected") for it in kubelet.events), kubelet.events

    run_secured(tmp_path, scenario)


@pytest.mark.slow
def test_a_thousand_users_at_once_get_their_credentials_and_rules(tmp_path: Path) -> None:
    names = [f"user-{number}" for number in range(1000)]

    async def scenario(kubelet: ProcessKubelet) -> None:
        for name in names:
            kubelet.put_user(name, acls=[{"allow": ["Read"], "topic": f"{name}.*"}])
        await kubelet.wait_until(lambda: all(kubelet.condition("User", name).get("status") == "True" for name in names))
        for name in (names[0], names[500], names[-1]):
            assert await can_log_in(kubelet, kubelet.secret(name)["password"], name)
            assert await rules_of(kubelet, name) == {f"allow Read on topic {name}.* to User:{name}"}
        before = list(kubelet.api.writes)
        await kubelet.reconcile()
        assert kubelet.api.writes == before, "converged objects are not written"

    run_secured(tmp_path, scenario)
