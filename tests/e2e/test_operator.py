"""The operator's looks with real brokers, on a kubelet of processes: topics, settings that change while brokers run, and those that take a restart."""

import asyncio
import copy
import fcntl
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from ottla_broker.wire.records import Record
from ottla_operator.kafka import configs, groups, topics
from ottla_operator.kafka.client import KafkaClient, connect
from ottla_operator.kafka.producer import Producer
from ottla_operator.reconcile.watch_cache import reduce_resource
from ottla_operator.resources.model import Json
from tests.e2e.process_kubelet import KEY, ProcessKubelet

STORAGE = {"size": "1Gi"}


def run_with_cluster(
    folder: Path, replicas: int, story: Callable[[ProcessKubelet], Awaitable[None]], **spec: object
) -> None:
    async def main() -> None:
        world = ProcessKubelet(folder)
        world.api.cluster({"replicas": replicas, "storage": STORAGE, **spec})
        try:
            await world.wait_until_ready()
            await story(world)
        finally:
            await world.stop()

    asyncio.run(main())


@asynccontextmanager
async def connect_to_brokers(world: ProcessKubelet) -> AsyncIterator[KafkaClient]:
    (pod, *_) = world.api.of("Pod").values()
    async with connect(f"{pod['status']['podIP']}:9091") as link:
        yield link


async def topic_names(world: ProcessKubelet) -> set[str]:
    async with connect_to_brokers(world) as link:
        return {it.name for it in await topics.list_topics(link)}


def test_topics_are_made_grown_configured_and_put_right(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("flights", partitions=2, config={"retention.ms": 1000})
        await world.wait_until_ready("Topic", "flights")
        assert world.status("Topic", "flights")["partitions"] == 2
        before = list(world.api.writes)
        for _ in range(3):
            await world.reconcile()
        assert world.api.writes == before, "converged objects are not written"
        world.edit_spec("Topic", "flights", partitions=4, config={"retention.ms": 2000})
        await world.wait_until_ready("Topic", "flights")
        async with connect_to_brokers(world) as link:
            assert (await topics.describe_topics(link, ["flights"]))["flights"].partitions[3]
            await configs.alter_topic_config(link, "flights", {"retention.ms": "7"}, ())
            await world.wait_until(lambda: "topic flights: retention.ms=2000" in world.events[-1])
            assert (await configs.describe_topic_overrides(link, ["flights"]))["flights"] == {"retention.ms": "2000"}

    run_with_cluster(tmp_path, 1, story)


def test_a_topic_stays_or_goes_with_its_resource_as_that_said_last(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("kept")
        world.put_topic("gone", deletionPolicy="Delete")
        world.put_topic("unseen", deletionPolicy="Delete")
        world.put_topic("again", deletionPolicy="Delete")
        for name in ("gone", "unseen", "again"):
            await world.wait_until_ready("Topic", name)
        before = world.status("Topic", "again")["topicId"]
        early = ProcessKubelet(world.folder, api=world.api)  # another operator, whose watches have shown no Topic yet
        early.controller.update(world.api.objects["Cluster", "events", "demo"])
        await early.controller.topics.reconcile(KEY)
        assert {"kept", "gone", "unseen", "again"} <= await topic_names(world), (
            "a Topic that no watch has shown is not deleted"
        )
        for name in ("kept", "gone", "unseen", "again"):
            it = world.api.objects.pop(("Topic", "events", name))
            assert "finalizers" not in it["metadata"]
            if name in ("gone", "again"):
                world.controller.update(it, is_deleted=True)
            else:
                world.controller.forget(reduce_resource(it))
        world.put_topic("again", deletionPolicy="Delete")
        await world.reconcile()
        found = await topic_names(world)
        assert {"kept", "unseen"} <= found and "gone" not in found
        assert any(it.startswith("TopicRetained: ") and it.endswith(": unseen") for it in world.events)
        await world.wait_until_ready("Topic", "again")
        assert world.status("Topic", "again")["topicId"] != before, (
            "a topic that is created again has no records of the deleted one"
        )

    run_with_cluster(tmp_path, 1, story)


def test_two_resources_of_one_topic_and_a_topic_that_was_there_before(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        async with connect_to_brokers(world) as link:
            await topics.create_topic(link, "old", 2, 1, {})
        world.put_topic("adopted", topicName="old", partitions=3)
        world.put_topic("late", topicName="old")["metadata"]["creationTimestamp"] = "2026-12-01T00:00:00Z"
        await world.wait_until_ready("Topic", "adopted")
        assert world.status("Topic", "adopted")["partitions"] == 3
        assert world.condition("Topic", "late", "Stalled")["reason"] == "NameConflict"

    run_with_cluster(tmp_path, 1, story)


def test_a_topic_gets_more_copies_and_fewer_and_others_are_left_alone(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        async with connect_to_brokers(world) as link:
            await topics.create_topic(link, "theirs", 1, 1, {"retention.ms": "1000"})
        world.put_topic("flights", partitions=3, replicas=1)
        await world.wait_until_ready("Topic", "flights")
        for wanted in (3, 2):
            world.edit_spec("Topic", "flights", replicas=wanted)
            await world.wait_until_ready("Topic", "flights")
            async with connect_to_brokers(world) as link:
                found = await topics.describe_topics(link, ["flights", "theirs"])
                assert [len(it.isr) for it in found["flights"].partitions] == 3 * [wanted]
                assert [len(it.replicas) for it in found["theirs"].partitions] == [1]
        world.edit_spec("Topic", "flights", replicas=4)
        await world.wait_until(lambda: world.condition("Topic", "flights", "Stalled").get("status") == "True")
        assert "4 replicas" in world.condition("Topic", "flights", "Stalled")["message"]
        async with connect_to_brokers(world) as link:
            assert (await configs.describe_topic_overrides(link, ["theirs"]))["theirs"] == {"retention.ms": "1000"}

    run_with_cluster(tmp_path, 3, story)


def test_a_new_topic_with_more_copies_than_its_cluster_shall_have_brokers_is_a_persons_matter(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("flights", replicas=2)
        await world.wait_until(
            lambda: world.condition("Topic", "flights", "Stalled").get("status") == "True", within_s=10
        )
        assert "replica" in world.condition("Topic", "flights", "Stalled")["message"]
        world.edit_spec("Cluster", "demo", replicas=2)
        await world.wait_until_ready("Topic", "flights")

    run_with_cluster(tmp_path, 1, story)


def test_a_listener_that_takes_the_port_between_brokers_is_a_roll(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        for port in (9091, 9092):
            world.edit_spec("Cluster", "demo", listeners=[{"name": "plain", "port": port}])
            await world.wait_until_ready()
        assert sorted(world.created_pods) == 3 * ["demo-1"] + 3 * ["demo-2"]

    run_with_cluster(tmp_path, 2, story)


def test_no_pod_may_be_evicted_while_a_partition_is_short_of_replicas(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        def may() -> object:
            return world.api.objects["PodDisruptionBudget", "events", "demo"]["spec"]["maxUnavailable"]

        world.put_topic("flights", replicas=2)
        await world.wait_until_ready("Topic", "flights")
        await world.wait_until(lambda: may() == 1)
        del world.api.objects["Pod", "events", "demo-2"]  # as an eviction does
        await world.wait_until(lambda: may() == 0)
        short: list[object] = []

        def back() -> bool:
            status = world.status("Cluster", "demo")
            if status["readyReplicas"] == 2 and status["underReplicated"]:
                short.append(may())
            return may() == 1

        await world.wait_until(back)
        assert set(short) <= {0}, "one that serves again may still have to copy"
        assert world.status("Cluster", "demo")["underReplicated"] == 0

    run_with_cluster(tmp_path, 2, story)


def test_settings_that_running_brokers_take_and_settings_that_take_a_restart(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        assert world.created_pods == ["demo-1"]
        world.edit_spec("Cluster", "demo", config={"log.retention.ms": 5000})
        await world.wait_until_ready()
        assert (
            world.created_pods == ["demo-1"]
            and "ConfigChanged: log.retention.ms=5000, without a restart" in world.events
        )
        world.edit_spec("Cluster", "demo", config={"log.retention.ms": 5000, "num.partitions": 5})
        await world.wait_until_ready()
        assert world.created_pods == ["demo-1", "demo-1"]
        async with connect_to_brokers(world) as link:
            await topics.create_topic(link, "five", -1, -1, {})
            assert len((await topics.describe_topics(link, ["five"]))["five"].partitions) == 5
        assert "ottla.dev/cluster-settings" not in world.api.stateful_set["metadata"]["annotations"]

    run_with_cluster(tmp_path, 1, story)


def test_a_refused_setting_is_told_and_no_broker_is_stopped_for_it(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.edit_spec("Cluster", "demo", config={"log.retention.ms": "soon"})
        await world.wait_until(lambda: world.condition("Cluster", "demo", "Stalled").get("reason") == "SettingRefused")
        assert "log.retention.ms cannot be 'soon'" in world.condition("Cluster", "demo")["message"]
        assert world.created_pods == ["demo-1"]
        world.edit_spec("Cluster", "demo", config={})
        await world.wait_until_ready()
        assert world.created_pods == ["demo-1"]

    run_with_cluster(tmp_path, 1, story)


def test_a_setting_with_which_a_broker_does_not_start_is_told_in_its_own_words_and_setting_it_back_heals(
    tmp_path: Path,
) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.edit_spec("Cluster", "demo", config={"num.partitions": "${env:MISSING}"})
        await world.wait_until(
            lambda: (
                "num.partitions" in world.condition("Cluster", "demo").get("message", "")
                and "CrashLoop" in world.condition("Cluster", "demo")["message"]
            )
        )
        world.edit_spec("Cluster", "demo", config={})
        await world.wait_until_ready()
        async with connect_to_brokers(world) as link:
            assert "num.partitions" not in await configs.list_dynamic_broker_configs(link, 1)

    run_with_cluster(tmp_path, 1, story)


def test_three_brokers_are_restarted_one_at_a_time_and_the_controller_last(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("flights", partitions=6, replicas=3, config={"min.insync.replicas": 2})
        await world.wait_until_ready("Topic", "flights")
        controller = world.status("Cluster", "demo")["controller"]
        world.edit_spec("Cluster", "demo", config={"num.partitions": 5})
        least = 3

        def done() -> bool:
            nonlocal least
            if len(world.created_pods) < 6:
                least = min(least, world.status("Cluster", "demo")["readyReplicas"])
            found = world.condition("Cluster", "demo")
            return len(world.created_pods) == 6 and found["status"] == "True"

        await world.wait_until(done, within_s=90)
        assert least >= 2
        assert (
            sorted(world.created_pods[3:]) == ["demo-1", "demo-2", "demo-3"]
            and world.created_pods[-1] == f"demo-{controller}"
        )
        assert world.status("Cluster", "demo")["underReplicated"] == 0

    run_with_cluster(tmp_path, 3, story)


def test_more_brokers_get_partitions_and_fewer_give_them_up_first(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("flights", partitions=8, replicas=2)
        await world.wait_until_ready("Topic", "flights")
        world.edit_spec("Cluster", "demo", replicas=3)
        await world.wait_until_ready()
        await world.wait_until(
            lambda: world.api.stateful_set["metadata"]["annotations"].get("ottla.dev/spread") == "1,2,3"
        )
        async with connect_to_brokers(world) as link:
            found = (await topics.describe_topics(link, ["flights"]))["flights"]
            assert {broker for it in found.partitions for broker in it.replicas} == {1, 2, 3}
        world.edit_spec("Cluster", "demo", replicas=2)
        await world.wait_until_ready()
        await world.wait_until(lambda: set(world.api.of("Pod")) == {"demo-1", "demo-2"})
        async with connect_to_brokers(world) as link:
            found = (await topics.describe_topics(link, ["flights"]))["flights"]
            assert {broker for it in found.partitions for broker in it.replicas} == {1, 2}
            assert all(set(it.isr) == {1, 2} for it in found.partitions)

    run_with_cluster(tmp_path, 2, story)


def test_fewer_brokers_than_a_topic_has_copies_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("flights", partitions=2, replicas=3)
        await world.wait_until_ready("Topic", "flights")
        before = await told(world)
        world.edit_spec("Cluster", "demo", replicas=2)
        await world.wait_until(
            lambda: world.condition("Cluster", "demo", "Stalled").get("reason") == "ScaleDownBlocked"
        )
        assert "flights" in world.condition("Cluster", "demo", "Stalled")["message"]
        assert await told(world) == before
        world.edit_spec("Cluster", "demo", replicas=3)
        await world.wait_until_ready()
        assert sorted(world.created_pods) == ["demo-1", "demo-2", "demo-3"], "nobody was restarted"

    async def told(world: ProcessKubelet) -> tuple[object, ...]:
        async with connect_to_brokers(world) as link:
            await groups.list_group_offsets(link, "readers")  # the brokers' own topic is there from here on
            (own,) = (await topics.describe_topics(link, ["__consumer_offsets"])).values()
            replicas = {it.index: it.replicas for it in own.partitions}
            least = await configs.describe_min_isr(link, ["flights", "__consumer_offsets"])
            return replicas, least, copy.deepcopy(world.api.stateful_set["spec"])

    run_with_cluster(tmp_path, 3, story)


def test_of_two_brokers_one_goes_when_the_other_keeps_the_metadata_log_too(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.edit_spec("Cluster", "demo", config={"num.partitions": 5})
        await world.wait_until(
            lambda: len(voters_in_register(world)) == 1
        )  # the first has left, and has not been started again
        with lock_register(world):  # so it cannot be taken in again
            await world.wait_until(lambda: blocked_by(world) == ["__cluster_metadata"])
            assert len(world.created_pods) == 3
            told = world.condition("Cluster", "demo")["message"]
            assert "__cluster_metadata-0 has" in told and "needs 1 beside broker" in told
        await world.wait_until_ready()
        assert sorted(world.created_pods) == ["demo-1", "demo-1", "demo-2", "demo-2"]

    def blocked_by(world: ProcessKubelet) -> list[str]:
        return [it["topic"] for it in world.status("Cluster", "demo").get("roll", {}).get("blockedBy", ())]

    run_with_cluster(tmp_path, 2, story)


def voters_in_register(world: ProcessKubelet) -> list[Json]:
    """Those that keep the metadata log, as the register says."""
    found: list[Json] = json.loads((world.folder / "register.json").read_text())["isr"]
    return found


@contextmanager
def lock_register(world: ProcessKubelet) -> Iterator[None]:
    """Nobody can write to the register meanwhile; all can read it."""
    with (world.folder / "register.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_status_tells_how_many_partitions_of_a_move_have_arrived(tmp_path: Path) -> None:
    async def story(world: ProcessKubelet) -> None:
        world.put_topic("flights", partitions=6, replicas=1)
        await world.wait_until_ready("Topic", "flights")
        async with connect_to_brokers(world) as link:
            writer = Producer(link)
            await writer.open()
            await writer.count_partitions("flights")
            for number in range(6):  # each arrives at a time of its own
                for _ in range(number + 1):
                    await writer.add(("flights", number), Record(0, b"", bytes(200_000)))
            await writer.flush()
        told: list[tuple[int, int]] = []

        def over() -> bool:
            now = world.status("Cluster", "demo").get("reassignment")
            if now and (it := (now["moved"], now["total"])) not in told[-1:]:
                told.append(it)
            generation = world.api.objects["Cluster", "events", "demo"]["metadata"]["generation"]
            ready = world.condition("Cluster", "demo")
            return bool(ready["status"] == "True" and ready["observedGeneration"] == generation)

        world.edit_spec("Cluster", "demo", replicas=2)
        await world.wait_until(over)
        total = told[-1][1]
        moved = [moved for moved, of in told if of == total]
        assert moved == sorted(moved) and 0 < moved[-1] < total
        assert "reassignment" not in world.status("Cluster", "demo")

    run_with_cluster(tmp_path, 1, story, rebalance={"throttle": "400Ki"})
