"""A Topic whose `deletionPolicy` was Delete and is Retain, or nothing, by now: its topic and records stay, however soon the resource goes."""

import asyncio
from typing import Any, cast

from ottla_operator.kube.api import Api
from ottla_operator.kube.known import Key, Known
from ottla_operator.kube.ledger import Ledger
from ottla_operator.kube.telling import Telling
from ottla_operator.kube.topics import Topics
from ottla_operator.resources.model import Json
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")


def body(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "ottla.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "namespace": KEY.namespace, "uid": f"uid-{name}", "generation": 1},
        "spec": {"clusterRef": {"name": KEY.name}, **spec},
        "status": {},
    }


def noted_after_a_look(known: Known, *noted: str) -> set[str]:
    """Which of the resources that were noted to take their topics with them still are, after a look while no broker can be asked."""

    async def main() -> set[str]:
        api = FakeApi()
        cluster = api.cluster({"replicas": 1, "storage": {"size": "1Gi"}})
        as_api = cast(Api, api)
        ledger = await Ledger.read(as_api, KEY)
        await ledger.write({name: (name, "id") for name in noted}, cluster)

        async def the_cluster(_: Key) -> Json | None:
            return cluster

        topics = Topics(
            as_api,
            Telling(as_api, "test"),
            lambda key: known.topics.get(key, {}),
            the_cluster,
            lambda key: known.staying.get(key, set()),
        )
        await topics.look(KEY)
        return set((await Ledger.read(as_api, KEY)).by_resource)

    return asyncio.run(main())


def test_who_says_retain_and_deletes_the_resource_before_anybody_has_looked_keeps_the_topic() -> None:
    known = Known()
    for name in ("kept", "gone"):
        known.see(body(name, deletionPolicy="Delete"), gone=False)
    known.see(body("kept", deletionPolicy="Retain"), gone=True)  # the last that a watch shows of it
    known.see(body("gone", deletionPolicy="Delete"), gone=True)
    assert noted_after_a_look(known, "kept", "gone") == {"gone"}
    assert known.staying == {KEY: set()}, "nothing is kept in mind for ever"


def test_who_says_retain_is_heard_although_no_broker_can_be_asked() -> None:
    known = Known()
    known.see(body("kept"), gone=False)
    known.see(body("gone", deletionPolicy="Delete"), gone=False)
    assert noted_after_a_look(known, "kept", "gone") == {"gone"}


def test_a_resource_that_is_made_anew_speaks_for_itself() -> None:
    known = Known()
    known.see(body("again"), gone=True)
    known.see(body("again", deletionPolicy="Delete"), gone=False)
    assert noted_after_a_look(known, "again") == {"again"}
