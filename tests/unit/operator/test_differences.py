"""What `ottla diff` says of resources whose changes are impossible, or need others first."""

from pathlib import Path
from typing import Any, cast

import pytest

from ottla_operator.cli import diff
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.local.documents import Document
from ottla_operator.plan.differences import Difference
from ottla_operator.plan.users import ObservedUser
from ottla_operator.reconcile.user_changes import ObservedUsers
from ottla_operator.resources.model import Json
from tests.unit.async_tests import async_test
from tests.unit.operator import samples

SCRAM = [{"name": "clients", "port": 9094, "authentication": "SCRAM"}]
IMPOSSIBLE = Difference(
    "acls", "", "the brokers have no authorizer without authorization.type ACL of the Cluster", is_possible=False
)


async def compare_user(user: Json, *clusters: Json, has_acls: bool, monkeypatch: Any) -> list[Difference]:
    """The differences of the User from brokers without any user. `has_acls`: the brokers have an
    authorizer.
    """

    async def observe_users(_: object) -> ObservedUsers:
        return ObservedUsers({user["metadata"]["name"]: ObservedUser()}, has_acls, has_quotas=True)

    monkeypatch.setattr(diff, "observe_users", observe_users)
    file = Path("all.yaml")
    documents = [Document(file, it, {(): 1}) for it in clusters]
    ((_, found),) = await diff._compare_users(cast(KafkaClient, None), [Document(file, user, {(): 1})], documents, {})
    return [*found]


@async_test
async def test_access_rules_are_possible_if_the_cluster_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    user = samples.user(acls=[{"allow": ["Read"], "topic": "orders"}], authentication={"type": "External"})
    secured = samples.cluster(listeners=SCRAM, authorization={"type": "ACL"})
    added = [Difference("user", "", "1 rule added: allow Read on topic orders to User:alice")]
    for clusters, has_acls, expected in (
        ([secured], False, added),
        ([secured], True, added),
        ([], True, added),
        ([], False, [IMPOSSIBLE]),
        ([samples.cluster()], False, [IMPOSSIBLE]),
        ([samples.cluster()], True, [IMPOSSIBLE]),
    ):
        assert await compare_user(user, *clusters, has_acls=has_acls, monkeypatch=monkeypatch) == expected
