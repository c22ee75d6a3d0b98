"""The synchronisation of a mirror reports whose error has ended it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from ottla_broker.mirroring import synchronizer
from ottla_broker.mirroring.acl_sync import AclChanges
from ottla_broker.mirroring.mirror_config import FetchLimits, MirrorConfig
from ottla_broker.mirroring.synchronizer import MirrorProblems, MirrorSynchronizer, SyncedTopics
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

MIRROR = MirrorConfig("west", "west:9092", ("*",), (), "Replicate", False, True, 10.0, FetchLimits(), sync_acls=True)
SECURITY_DISABLED = KafkaError(ErrorCode.security_disabled, "no Authorizer is configured")


class ClosedClient:
    async def close(self) -> None:
        pass


async def synchronize_once(sync: MirrorSynchronizer) -> MirrorProblems:
    """The problems when the first synchronisation is over: `asyncio.sleep` ends the loop."""
    with suppress(asyncio.CancelledError):
        await sync._sync_mirror(MIRROR)
    return sync.problems(MIRROR.name)


def raising(error: BaseException) -> Callable[..., Any]:
    async def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("at_source", "here", "expected"),
    [
        (True, False, MirrorProblems("the source at west:9092: no Authorizer is configured")),
        (False, True, MirrorProblems(target_error="the target cluster: no Authorizer is configured")),
        (False, False, MirrorProblems()),
    ],
)
def test_error_is_that_of_the_cluster_that_raised_it(
    monkeypatch: pytest.MonkeyPatch, at_source: bool, here: bool, expected: MirrorProblems
) -> None:
    async def return_none(*_: object) -> Any:
        return None

    controller = SimpleNamespace(sync_acls=raising(SECURITY_DISABLED) if here else return_none)
    image, client = cast(Any, SimpleNamespace(acls={})), cast(Client, ClosedClient())
    sync = MirrorSynchronizer(cast(Any, controller), image, cast(Any, None), "id", lambda _: client)

    async def sync_topics(*_: object) -> SyncedTopics:
        return SyncedTopics({"t": "t"}, {"t": "t"})

    monkeypatch.setattr(MirrorConfig, "source_client", lambda *_: ClosedClient())
    monkeypatch.setattr(MirrorSynchronizer, "_sync_topics", sync_topics)
    monkeypatch.setattr(synchronizer, "fetch_topic_acls", raising(SECURITY_DISABLED) if at_source else return_none)
    monkeypatch.setattr(synchronizer, "plan_acl_sync", lambda *_: AclChanges({}, (uuid4(),)))
    monkeypatch.setattr(asyncio, "sleep", raising(asyncio.CancelledError()))
    assert asyncio.run(synchronize_once(sync)) == expected
