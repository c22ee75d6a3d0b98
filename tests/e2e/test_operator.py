"""The operator's reconciliation with real brokers as processes: topics, dynamic settings, settings
that need a rolling restart, and changes of the number of brokers.
"""

import copy
from pathlib import Path

from ottla_broker.wire.records import Record
from ottla_operator.kafka import configs, groups, topics
from ottla_operator.kafka.producer import Producer
from ottla_operator.kafka.quorum import list_voters
from ottla_operator.reconcile.watch_cache import reduce_resource
from tests.e2e.process_kubelet import KEY, ProcessKubelet, connect_to_brokers, run_with_cluster


async def topic_names(kubelet: ProcessKubelet) -> set[str]:
    async with connect_to_brokers(kubelet) as client:
        return {it.name for it in await topics.list_topics(client)}


def test_topic_is_created_expanded_configured_and_its_drift_is_reverted(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("flights", partitions=2, config={"retention.ms": 1000})
        await kubelet.wait_until_ready("Topic", "flights")
        assert kubelet.status("Topic", "flights")["partitions"] == 2
        before = list(kubelet.api.writes)
        for _ in range(3):
            await kubelet.reconcile()
        assert kubelet.api.writes == before, "converged objects are not written"
        kubelet.edit_spec("Topic", "flights", partitions=4, config={"retention.ms": 2000})
        await kubelet.wait_until_ready("Topic", "flights")
        async with connect_to_brokers(kubelet) as client:
            assert (await topics.describe_topics(client, ["flights"]))["flights"].partitions[3]
            await configs.alter_topic_config(client, "flights", {"retention.ms": "7"}, ())
            await kubelet.wait_until(lambda: "topic flights: retention.ms=2000" in kubelet.events[-1])
            assert (await configs.describe_topic_overrides(client, ["flights"]))["flights"] == {"retention.ms": "2000"}

    run_with_cluster(tmp_path, 1, scenario)


def test_deletion_policy_that_was_observed_last_decides_whether_a_topic_is_deleted(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("kept")
        kubelet.put_topic("gone", deletionPolicy="Delete")
        kubelet.put_topic("unseen", deletionPolicy="Delete")
        kubelet.put_topic("again", deletionPolicy="Delete")
        for name in ("gone", "unseen", "again"):
            await kubelet.wait_until_ready("Topic", name)
        before = kubelet.status("Topic", "again")["topicId"]
        # Another operator, whose watch has delivered no Topic yet.
        new_operator = ProcessKubelet(kubelet.folder, api=kubelet.api)
        new_operator.controller.update(kubelet.api.objects["Cluster", "events", "demo"])
        await new_operator.controller.topics.reconcile(KEY)
        assert {"kept", "gone", "unseen", "again"} <= await topic_names(kubelet), (
            "a topic is not deleted before its Topic was observed"
        )
        for name in ("kept", "gone", "unseen", "again"):
            resource = kubelet.api.objects.pop(("Topic", "events", name))
            assert "finalizers" not in resource["metadata"]
            if name in ("gone", "again"):
                kubelet.controller.update(resource, is_deleted=True)
            else:
                kubelet.controller.forget(reduce_resource(resource))
        kubelet.put_topic("again", deletionPolicy="Delete")
        await kubelet.reconcile()
        names = await topic_names(kubelet)
        assert {"kept", "unseen"} <= names and "gone" not in names
        assert any(it.startswith("TopicRetained: ") and it.endswith(": unseen") for it in kubelet.events)
        await kubelet.wait_until_ready("Topic", "again")
        assert kubelet.status("Topic", "again")["topicId"] != before, (
            "a topic that is created again has no records of the deleted one"
        )

    run_with_cluster(tmp_path, 1, scenario)


def test_existing_topic_is_adopted_by_the_older_of_two_resources(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        async with connect_to_brokers(kubelet) as client:
            await topics.create_topic(client, "old", 2, 1, {})
        kubelet.put_topic("adopted", topicName="old", partitions=3)
        kubelet.put_topic("late", topicName="old")["metadata"]["creationTimestamp"] = "2026-12-01T00:00:00Z"
        await kubelet.wait_until_ready("Topic", "adopted")
        assert kubelet.status("Topic", "adopted")["partitions"] == 3
        assert kubelet.condition("Topic", "late", "Stalled")["reason"] == "NameConflict"

    run_with_cluster(tmp_path, 1, scenario)


def test_replication_factor_is_raised_and_lowered_and_other_topics_are_not_changed(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        async with connect_to_brokers(kubelet) as client:
            await topics.create_topic(client, "theirs", 1, 1, {"retention.ms": "1000"})
        kubelet.put_topic("flights", partitions=3, replicas=1)
        await kubelet.wait_until_ready("Topic", "flights")
        for replicas in (3, 2):
            kubelet.edit_spec("Topic", "flights", replicas=replicas)
            await kubelet.wait_until_ready("Topic", "flights")
            async with connect_to_brokers(kubelet) as client:
                found = await topics.describe_topics(client, ["flights", "theirs"])
                assert [len(it.isr) for it in found["flights"].partitions] == 3 * [replicas]
                assert [len(it.replicas) for it in found["theirs"].partitions] == [1]
        kubelet.edit_spec("Topic", "flights", replicas=4)
        await kubelet.wait_until(lambda: kubelet.condition("Topic", "flights", "Stalled").get("status") == "True")
        assert "4 replicas" in kubelet.condition("Topic", "flights", "Stalled")["message"]
        async with connect_to_brokers(kubelet) as client:
            assert (await configs.describe_topic_overrides(client, ["theirs"]))["theirs"] == {"retention.ms": "1000"}

    run_with_cluster(tmp_path, 3, scenario)


def test_new_topic_with_more_replicas_than_brokers_stalls_until_the_cluster_is_larger(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("flights", replicas=2)
        await kubelet.wait_until(
            lambda: kubelet.condition("Topic", "flights", "Stalled").get("status") == "True", within_s=10
        )
        assert "replica" in kubelet.condition("Topic", "flights", "Stalled")["message"]
        kubelet.edit_spec("Cluster", "demo", replicas=2)
        await kubelet.wait_until_ready("Topic", "flights")

    run_with_cluster(tmp_path, 1, scenario)


def test_listener_on_the_port_between_brokers_needs_a_rolling_restart(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        for port in (9091, 9092):
            kubelet.edit_spec("Cluster", "demo", listeners=[{"name": "plain", "port": port}])
            await kubelet.wait_until_ready()
        assert sorted(kubelet.created_pods) == 3 * ["demo-1"] + 3 * ["demo-2"]

    run_with_cluster(tmp_path, 2, scenario)


def test_no_pod_may_be_evicted_while_a_partition_is_under_replicated(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        def max_unavailable() -> object:
            return kubelet.api.objects["PodDisruptionBudget", "events", "demo"]["spec"]["maxUnavailable"]

        kubelet.put_topic("flights", replicas=2)
        await kubelet.wait_until_ready("Topic", "flights")
        await kubelet.wait_until(lambda: max_unavailable() == 1)
        del kubelet.api.objects["Pod", "events", "demo-2"]  # as an eviction does
        await kubelet.wait_until(lambda: max_unavailable() == 0)
        limits: list[object] = []  # while a broker that is ready again still copies

        def is_restored() -> bool:
            status = kubelet.status("Cluster", "demo")
            if status["readyReplicas"] == 2 and status["underReplicated"]:
                limits.append(max_unavailable())
            return max_unavailable() == 1

        await kubelet.wait_until(is_restored)
        assert set(limits) <= {0}, "no eviction before the restarted broker is in sync"
        assert kubelet.status("Cluster", "demo")["underReplicated"] == 0

    run_with_cluster(tmp_path, 2, scenario)


def test_dynamic_settings_restart_no_broker_and_other_settings_do(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        assert kubelet.created_pods == ["demo-1"]
        kubelet.edit_spec("Cluster", "demo", config={"log.retention.ms": 5000})
        await kubelet.wait_until_ready()
        assert (
            kubelet.created_pods == ["demo-1"]
            and "ConfigChanged: log.retention.ms=5000, without a restart" in kubelet.events
        )
        kubelet.edit_spec("Cluster", "demo", config={"log.retention.ms": 5000, "num.partitions": 5})
        await kubelet.wait_until_ready()
        assert kubelet.created_pods == ["demo-1", "demo-1"]
        async with connect_to_brokers(kubelet) as client:
            await topics.create_topic(client, "five", -1, -1, {})
            assert len((await topics.describe_topics(client, ["five"]))["five"].partitions) == 5
        assert "ottla.dev/cluster-settings" not in kubelet.api.stateful_set["metadata"]["annotations"]

    run_with_cluster(tmp_path, 1, scenario)


def test_invalid_setting_stalls_the_cluster_and_restarts_no_broker(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.edit_spec("Cluster", "demo", config={"log.retention.ms": "soon"})
        await kubelet.wait_until(
            lambda: kubelet.condition("Cluster", "demo", "Stalled").get("reason") == "SettingRefused"
        )
        assert "log.retention.ms cannot be 'soon'" in kubelet.condition("Cluster", "demo")["message"]
        assert kubelet.created_pods == ["demo-1"]
        kubelet.edit_spec("Cluster", "demo", config={})
        await kubelet.wait_until_ready()
        assert kubelet.created_pods == ["demo-1"]

    run_with_cluster(tmp_path, 1, scenario)


def test_setting_that_prevents_a_start_is_reported_and_the_cluster_recovers_without_it(
    tmp_path: Path,
) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.edit_spec("Cluster", "demo", config={"num.partitions": "${env:MISSING}"})
        await kubelet.wait_until(
            lambda: (
                "num.partitions" in kubelet.condition("Cluster", "demo").get("message", "")
                and "CrashLoop" in kubelet.condition("Cluster", "demo")["message"]
            )
        )
        kubelet.edit_spec("Cluster", "demo", config={})
        await kubelet.wait_until_ready()
        async with connect_to_brokers(kubelet) as client:
            assert "num.partitions" not in await configs.list_dynamic_broker_configs(client, 1)

    run_with_cluster(tmp_path, 1, scenario)


def test_three_brokers_are_restarted_one_at_a_time_and_the_controller_last(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("flights", partitions=6, replicas=3, config={"min.insync.replicas": 2})
        await kubelet.wait_until_ready("Topic", "flights")
        controller = kubelet.status("Cluster", "demo")["controller"]
        kubelet.edit_spec("Cluster", "demo", config={"num.partitions": 5})
        min_ready = 3

        def is_rolled() -> bool:
            nonlocal min_ready
            if len(kubelet.created_pods) < 6:
                min_ready = min(min_ready, kubelet.status("Cluster", "demo")["readyReplicas"])
            ready = kubelet.condition("Cluster", "demo")
            return len(kubelet.created_pods) == 6 and ready["status"] == "True"

        await kubelet.wait_until(is_rolled, within_s=90)
        assert min_ready >= 2
        assert (
            sorted(kubelet.created_pods[3:]) == ["demo-1", "demo-2", "demo-3"]
            and kubelet.created_pods[-1] == f"demo-{controller}"
        )
        assert kubelet.status("Cluster", "demo")["underReplicated"] == 0

    run_with_cluster(tmp_path, 3, scenario)


def test_added_broker_gets_partitions_and_a_broker_is_drained_before_its_removal(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("flights", partitions=8, replicas=2)
        await kubelet.wait_until_ready("Topic", "flights")
        kubelet.edit_spec("Cluster", "demo", replicas=3)
        await kubelet.wait_until_ready()
        await kubelet.wait_until(
            lambda: kubelet.api.stateful_set["metadata"]["annotations"].get("ottla.dev/spread") == "1,2,3"
        )
        async with connect_to_brokers(kubelet) as client:
            found = (await topics.describe_topics(client, ["flights"]))["flights"]
            assert {broker for it in found.partitions for broker in it.replicas} == {1, 2, 3}
        kubelet.edit_spec("Cluster", "demo", replicas=2)
        await kubelet.wait_until_ready()
        await kubelet.wait_until(lambda: set(kubelet.api.of("Pod")) == {"demo-1", "demo-2"})
        async with connect_to_brokers(kubelet) as client:
            found = (await topics.describe_topics(client, ["flights"]))["flights"]
            assert {broker for it in found.partitions for broker in it.replicas} == {1, 2}
            assert all(set(it.isr) == {1, 2} for it in found.partitions)

    run_with_cluster(tmp_path, 2, scenario)


def test_fewer_brokers_than_a_topic_has_replicas_blocks_scaling_down_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("flights", partitions=2, replicas=3)
        await kubelet.wait_until_ready("Topic", "flights")
        before = await observed_state(kubelet)
        kubelet.edit_spec("Cluster", "demo", replicas=2)
        await kubelet.wait_until(
            lambda: kubelet.condition("Cluster", "demo", "Stalled").get("reason") == "ScaleDownBlocked"
        )
        assert "flights" in kubelet.condition("Cluster", "demo", "Stalled")["message"]
        assert await observed_state(kubelet) == before
        kubelet.edit_spec("Cluster", "demo", replicas=3)
        await kubelet.wait_until_ready()
        assert sorted(kubelet.created_pods) == ["demo-1", "demo-2", "demo-3"], "no broker was restarted"

    async def observed_state(kubelet: ProcessKubelet) -> tuple[object, ...]:
        async with connect_to_brokers(kubelet) as client:
            await groups.list_group_offsets(client, "readers")  # creates __consumer_offsets
            (offsets_topic,) = (await topics.describe_topics(client, ["__consumer_offsets"])).values()
            replicas = {it.index: it.replicas for it in offsets_topic.partitions}
            min_isr = await configs.describe_min_isr(client, ["flights", "__consumer_offsets"])
            return replicas, min_isr, copy.deepcopy(kubelet.api.stateful_set["spec"])

    run_with_cluster(tmp_path, 3, scenario)


def test_of_two_brokers_the_only_voter_is_restarted_last(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        async with connect_to_brokers(kubelet) as client:
            (voter,) = await list_voters(client)
        kubelet.edit_spec("Cluster", "demo", config={"num.partitions": 5})
        await kubelet.wait_until_ready()
        assert kubelet.created_pods[2:] == [f"demo-{3 - voter}", f"demo-{voter}"]

    run_with_cluster(tmp_path, 2, scenario)


def test_status_reports_the_moved_partitions_of_a_reassignment(tmp_path: Path) -> None:
    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("flights", partitions=6, replicas=1)
        await kubelet.wait_until_ready("Topic", "flights")
        async with connect_to_brokers(kubelet) as client:
            writer = Producer(client)
            await writer.open()
            await writer.count_partitions("flights")
            for number in range(6):  # partitions of different sizes, which are moved at different times
                for _ in range(number + 1):
                    await writer.add(("flights", number), Record(0, b"", bytes(200_000)))
            await writer.flush()
        progress: list[tuple[int, int]] = []  # moved and total, as reported

        def is_ready() -> bool:
            reassignment = kubelet.status("Cluster", "demo").get("reassignment")
            if reassignment and (it := (reassignment["moved"], reassignment["total"])) not in progress[-1:]:
                progress.append(it)
            generation = kubelet.api.objects["Cluster", "events", "demo"]["metadata"]["generation"]
            ready = kubelet.condition("Cluster", "demo")
            return bool(ready["status"] == "True" and ready["observedGeneration"] == generation)

        kubelet.edit_spec("Cluster", "demo", replicas=2)
        await kubelet.wait_until(is_ready)
        total = progress[-1][1]
        moved = [moved for moved, of in progress if of == total]
        assert moved == sorted(moved) and 0 < moved[-1] < total
        assert "reassignment" not in kubelet.status("Cluster", "demo")

    run_with_cluster(tmp_path, 1, scenario, rebalance={"throttle": "400Ki"})
