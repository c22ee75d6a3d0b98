"""Replication between brokers over a simulated network."""

import asyncio
from typing import Any

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.kafka_errors import error_of
from tests.unit.replication.simulated_run import run_scenario
from tests.unit.replication.small_cluster import SmallCluster


def test_records_are_acknowledged_when_all_in_the_isr_have_them() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()
        offsets = await asyncio.gather(*(cluster[1].append(b"%d" % number) for number in range(20)))
        assert offsets == list(range(20))
        for node_id in (2, 3):
            assert cluster[node_id].values() == [b"%d" % number for number in range(20)]
        await cluster.wait_until_equal()

    run_scenario(scenario)


def test_acknowledgement_takes_one_round_trip_to_the_followers() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()
        await cluster[1].append(b"first")
        slowest = max(
            cluster.network.link(f"broker-{a}", f"broker-{b}").latency_s for a in (1, 2, 3) for b in (1, 2, 3)
        )
        for _ in range(10):
            started = cluster.loop.time()
            await cluster[1].append(b"v")
            assert cluster.loop.time() - started < 2 * 2 * slowest  # a packet takes up to twice its link's latency

    run_scenario(scenario)


def test_rule_2_follower_truncates_diverging_records_although_both_log_ends_are_equal() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition(isr=(1, 2), replicas=(1, 2))
        await cluster[1].append(b"both")
        await cluster.wait_until_equal()
        cluster.cut_link(1, 2)
        lost = cluster[1].append(b"only here")
        await asyncio.sleep(0.1)
        cluster.without_metadata.add(1)
        cluster.set_partition(leader=2, isr=(2,))
        await cluster[2].append(b"the new leader's")
        cluster.restore_links()
        cluster.send_metadata(1)
        assert await error_of(lost) is ErrorCode.not_leader_or_follower
        await cluster.wait_until_equal(1, 2)
        assert cluster[1].values() == [b"both", b"the new leader's"]

    run_scenario(scenario, 2)


def test_rule_2_follower_keeps_records_above_its_high_watermark_if_the_leader_has_them() -> None:
    """If it truncated to its high watermark and became the leader, a record would be lost that the
    former leader has acknowledged.
    """

    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition(replicas=(1, 2))
        await cluster[1].append(b"0")
        await cluster.wait_until_equal()
        await cluster[1].append(b"1")
        assert cluster[2].partition().log.high_watermark == 1
        cluster[2].kill()
        await cluster.restart(2)
        assert cluster[2].partition().log.end == 2
        cluster[1].kill()
        cluster.set_partition(leader=2, isr=(2,))
        assert cluster[2].values() == [b"0", b"1"]
        assert cluster[2].partition().log.high_watermark == 2

    run_scenario(scenario, 2)


def test_follower_below_the_log_start_of_the_leader_starts_there() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()
        await cluster[1].append(b"0")
        await cluster.wait_until_equal()
        cluster[3].kill()
        cluster.set_partition(isr=(1, 2))
        for number in range(5):
            await cluster[1].append(b"%d" % number)
        log = cluster[1].partition().log
        log.roll()
        log.delete_records_before(4)
        log.apply_retention(cluster.now_ms())
        await cluster.restart(3)
        await cluster.wait_until(lambda: 3 in cluster.state[0].isr)
        assert cluster[3].partition().log.start == 4
        await cluster.wait_until(lambda: cluster[2].partition().log.start == 4)

    run_scenario(scenario, topic_config={"retention.ms": "-1"})


def test_failed_partition_does_not_stop_replication_of_others() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        for index in range(3):
            cluster.set_partition(index, replicas=(1, 2), isr=(1, 2))
        failed = cluster[2].partition(1).log
        failed.failure = KafkaError(ErrorCode.kafka_storage_error, "broken")
        for index in (0, 2):
            await cluster[1].append(b"v", index=index)
        late = cluster[1].append(b"v", index=1)
        for index in (0, 2):
            await cluster[1].append(b"v", index=index)
        assert not late.done()
        failed.failure = None
        await late

    run_scenario(scenario, 2)


def test_new_partition_is_fetched_while_another_fetch_waits() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition(0, replicas=(1, 2))
        await cluster[1].append(b"v")
        await cluster.wait_until_equal()
        await asyncio.sleep(0.1)  # the follower's fetch waits at the leader
        cluster.set_partition(1, replicas=(1, 2))
        started = cluster.loop.time()
        await cluster[1].append(b"v", index=1)
        assert cluster.loop.time() - started < 0.05

    run_scenario(scenario, 2, replica_fetch_wait_max_ms="10000")


def test_fetch_with_a_newer_epoch_is_served_as_soon_as_the_leader_has_the_metadata() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition(replicas=(1, 2))
        await cluster[1].append(b"v")
        cluster.without_metadata.add(1)
        cluster.set_partition(leader=1)
        await asyncio.sleep(0.2)
        cluster.send_metadata(1)
        assert await cluster.wait_until(lambda: cluster[1].partition().has_reached_epoch_start) < 0.02

    run_scenario(scenario, 2, replica_fetch_wait_max_ms="10000", replica_fetch_backoff_ms="30000")


def test_lagging_follower_leaves_the_isr_and_rejoins_when_it_has_caught_up() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()
        await cluster[1].append(b"0")
        cluster.cut_link(1, 3)
        acked = cluster[1].append(b"1")
        await asyncio.sleep(1)
        assert not acked.done()
        for _ in range(40):
            cluster[1].partition().shrink_isr(10.0)
            await asyncio.sleep(1)
            if acked.done():
                break
        assert cluster.state[0].isr == (1, 2)
        assert acked.done()
        cluster.restore_links()
        await cluster.wait_until(lambda: set(cluster.state[0].isr) == {1, 2, 3})
        await cluster.wait_until_equal()

    run_scenario(scenario)


def test_leader_continues_with_its_isr_while_the_controller_is_silent() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition(isr=(1, 2))
        cluster.controller_is_silent = True
        await cluster.wait_until(lambda: len(cluster.requests) == 1)  # 3 has caught up
        await cluster[1].append(b"0")
        cluster.cut_link(3, 1)
        pending = cluster[1].append(b"1")
        await asyncio.sleep(2)
        assert not pending.done()  # the controller may have added 3 to the ISR (rule 3)
        cluster.controller_is_silent = False
        cluster.restore_links()
        await pending
        await cluster.wait_until(lambda: set(cluster.state[0].isr) == {1, 2, 3})

    run_scenario(scenario)


@pytest.mark.parametrize("code", [ErrorCode.ineligible_replica, ErrorCode.invalid_request])
def test_rejected_isr_member_does_not_bound_the_high_watermark(code: ErrorCode) -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.reject_with = code
        cluster.set_partition(isr=(1, 2))
        await cluster.wait_until(lambda: len(cluster.requests) > 0)
        cluster.cut_link(3, 1)
        await cluster[1].append(b"1")
        assert cluster.state[0].isr == (1, 2)

    run_scenario(scenario)


def test_records_of_a_topic_with_flush_messages_1_are_acknowledged_when_followers_have_synced_them() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        for node in cluster.nodes.values():
            node.disk.set_sync_s(0.05, 0.05)
        cluster.set_partition()
        started = cluster.loop.time()
        await asyncio.gather(*(cluster[1].append(b"%d" % number) for number in range(30)))
        assert cluster.loop.time() - started > 0.05
        for node in cluster.nodes.values():
            node.lose_power()
        for node_id in cluster.nodes:
            await cluster.restart(node_id)
            assert len(cluster[node_id].values()) == 30

    run_scenario(scenario, topic_config={"flush.messages": "1"}, log_flush_interval_messages="1")


def test_producer_state_survives_a_change_of_leader() -> None:
    """Rule 8: a batch that is repeated to the new leader gets its original offset."""

    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()

        def batch(sequence: int) -> dict[str, Any]:
            return {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}

        for sequence in range(7):
            assert await cluster[1].append(b"v", **batch(sequence)) == sequence
        cluster[1].kill()
        cluster.set_partition(leader=2, isr=(2, 3))
        assert await cluster[2].append(b"v", **batch(4)) == 4
        assert await error_of(cluster[2].append(b"v", **batch(9))) is ErrorCode.out_of_order_sequence_number
        assert await cluster[2].append(b"v", **batch(7)) == 7

    run_scenario(scenario)


def test_leadership_callbacks_are_called_in_each_epoch() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()
        cluster.set_partition(leader=1)
        cluster.set_partition(leader=2)
        assert cluster[1].leadership_changes == [("gained", 0), ("lost", 1), ("gained", 1), ("lost", 2)]

    run_scenario(scenario)


def test_reassigned_replica_is_copied_at_the_throttled_rate() -> None:
    """Rule 12. Replicas in the ISR are not throttled."""

    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition(replicas=(1, 2), isr=(1, 2))
        for _ in range(20):
            await cluster[1].append(bytes(10_000))
        for node in cluster.nodes.values():
            node.config.set_dynamic({}, {cluster.throttle_config: "20000"})
        started = cluster.loop.time()
        cluster.set_partition(replicas=(1, 2, 3), adding=(3,))
        while 3 not in cluster.state[0].isr:
            await cluster[1].append(b"v")  # the ISR is not throttled
            await asyncio.sleep(0.2)
        assert 8 < cluster.loop.time() - started < 15
        assert cluster[1].values() == cluster[3].values()

    for side in ("leader", "follower"):
        topic = {f"{side}.replication.throttled.replicas": "0:3", "max.message.bytes": "20000"}

        async def throttled(cluster: SmallCluster, side: str = side) -> None:
            cluster.throttle_config = f"{side}.replication.throttled.rate"
            await scenario(cluster)

        run_scenario(throttled, topic_config=topic, replica_fetch_max_bytes="15000")


def test_rule_13_followers_do_not_mix_records_of_a_recreated_topic() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.set_partition()
        await cluster[1].append(b"old")
        await cluster.wait_until_equal()
        cluster.without_metadata.add(3)
        cluster.recreate_topic()
        await asyncio.gather(cluster[1].append(b"new", acks=1))
        await asyncio.sleep(2)
        assert cluster[3].values() == [b"old"]
        cluster.send_metadata(3)
        await cluster.wait_until_equal()
        assert cluster[3].values() == [b"new"]

    run_scenario(scenario)
