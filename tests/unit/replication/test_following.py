"""Brokers that copy from each other over the simulated network."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.processes import SimulatedLoop
from tests.unit.replication.small_cluster import SmallCluster, failure, simulated

Scenario = Callable[[SmallCluster], Awaitable[None]]


def run(scenario: Scenario, count: int = 3, topic_config: dict[str, str] | None = None, **settings: str) -> None:
    async def whole(loop: SimulatedLoop) -> None:
        cluster = SmallCluster(loop, count, topic_config, **settings)
        await cluster.started()
        async with asyncio.timeout(600):
            await scenario(cluster)

    simulated(whole)


def test_what_all_in_the_isr_have_is_acknowledged() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()
        offsets = await asyncio.gather(*(cluster[1].append(b"%d" % number) for number in range(20)))
        assert offsets == list(range(20))
        for node_id in (2, 3):
            assert cluster[node_id].values() == [b"%d" % number for number in range(20)]
        await cluster.until_equal()

    run(scenario)


def test_an_ack_takes_two_ways_there_and_back() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()
        await cluster[1].append(b"first")
        slowest = max(
            cluster.network.link(f"broker-{a}", f"broker-{b}").latency_s for a in (1, 2, 3) for b in (1, 2, 3)
        )
        for _ in range(10):
            began = cluster.loop.time()
            await cluster[1].append(b"v")
            assert cluster.loop.time() - began < 2 * 2 * slowest  # a packet takes up to twice its link's latency

    run(scenario)


def test_rule_2_a_follower_cuts_off_what_its_leader_never_had_although_both_ends_are_equal() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say(isr=(1, 2), replicas=(1, 2))
        await cluster[1].append(b"both")
        await cluster.until_equal()
        cluster.cut(1, 2)
        lost = cluster[1].append(b"only here")
        await asyncio.sleep(0.1)
        cluster.untold.add(1)
        cluster.say(leader=2, isr=(2,))
        await cluster[2].append(b"the new leader's")
        cluster.mend()
        cluster.reach(1)
        assert await failure(lost) is ErrorCode.not_leader_or_follower
        await cluster.until_equal(0, 1, 2)
        assert cluster[1].values() == [b"both", b"the new leader's"]

    run(scenario, 2)


def test_rule_2_a_follower_keeps_what_is_above_its_high_watermark_if_its_leader_has_it() -> None:
    """Truncation by high watermark would lose it: the follower does not know yet that it is acknowledged, and then it leads."""

    async def scenario(cluster: SmallCluster) -> None:
        cluster.say(replicas=(1, 2))
        await cluster[1].append(b"0")
        await cluster.until_equal()
        await cluster[1].append(b"1")
        assert cluster[2].partition().log.high_watermark == 1
        cluster[2].kill()
        await cluster.restarted(2)
        assert cluster[2].partition().log.end == 2
        cluster[1].kill()
        cluster.say(leader=2, isr=(2,))
        assert cluster[2].values() == [b"0", b"1"]
        assert cluster[2].partition().log.high_watermark == 2

    run(scenario, 2)


def test_a_follower_that_was_away_for_longer_than_records_are_kept_begins_at_the_leaders_start() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()
        await cluster[1].append(b"0")
        await cluster.until_equal()
        cluster[3].kill()
        cluster.say(isr=(1, 2))
        for number in range(5):
            await cluster[1].append(b"%d" % number)
        log = cluster[1].partition().log
        log.roll()
        log.delete_records_before(4)
        log.apply_retention(cluster.now_ms())
        await cluster.restarted(3)
        await cluster.until(lambda: 3 in cluster.state[0].isr)
        assert cluster[3].partition().log.start == 4
        await cluster.until(lambda: cluster[2].partition().log.start == 4)

    run(scenario, topic_config={"retention.ms": "-1"})


def test_a_failed_partition_does_not_stop_the_others() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        for index in range(3):
            cluster.say(index, replicas=(1, 2), isr=(1, 2))
        broken = cluster[2].partition(1).log
        broken.failure = KafkaError(ErrorCode.kafka_storage_error, "broken")
        for index in (0, 2):
            await cluster[1].append(b"v", index=index)
        late = cluster[1].append(b"v", index=1)
        for index in (0, 2):
            await cluster[1].append(b"v", index=index)
        assert not late.done()
        broken.failure = None
        await late

    run(scenario, 2)


def test_what_begins_to_be_followed_does_not_wait_for_a_long_poll() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say(0, replicas=(1, 2))
        await cluster[1].append(b"v")
        await cluster.until_equal()
        await asyncio.sleep(0.1)  # the follower's fetch waits at the leader
        cluster.say(1, replicas=(1, 2))
        began = cluster.loop.time()
        await cluster[1].append(b"v", index=1)
        assert cluster.loop.time() - began < 0.05

    run(scenario, 2, replica_fetch_wait_max_ms="10000")


def test_a_follower_that_knows_of_a_new_epoch_before_its_leader_is_served_as_soon_as_that_knows() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say(replicas=(1, 2))
        await cluster[1].append(b"v")
        cluster.untold.add(1)
        cluster.say(leader=1)
        await asyncio.sleep(0.2)
        cluster.reach(1)
        assert await cluster.until(lambda: cluster[1].partition().has_reached_epoch_start) < 0.02

    run(scenario, 2, replica_fetch_wait_max_ms="10000", replica_fetch_backoff_ms="30000")


def test_a_follower_that_lags_leaves_the_isr_and_comes_back_when_it_has_caught_up() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()
        await cluster[1].append(b"0")
        cluster.cut(1, 3)
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
        cluster.mend()
        await cluster.until(lambda: set(cluster.state[0].isr) == {1, 2, 3})
        await cluster.until_equal()

    run(scenario)


def test_a_leader_whose_controller_is_silent_goes_on_with_the_isr_that_it_has() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say(isr=(1, 2))
        cluster.silent = True
        await cluster.until(lambda: len(cluster.asked) == 1)  # 3 has caught up
        await cluster[1].append(b"0")
        cluster.cut(3, 1)
        waits = cluster[1].append(b"1")
        await asyncio.sleep(2)
        assert not waits.done()  # 3 may be in the ISR by now (rule 3)
        cluster.silent = False
        cluster.mend()
        await waits
        await cluster.until(lambda: set(cluster.state[0].isr) == {1, 2, 3})

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.ineligible_replica, ErrorCode.invalid_request])
def test_a_refused_member_counts_no_more(code: ErrorCode) -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.refuse = code
        cluster.say(isr=(1, 2))
        await cluster.until(lambda: len(cluster.asked) > 0)
        cluster.cut(3, 1)
        await cluster[1].append(b"1")
        assert cluster.state[0].isr == (1, 2)

    run(scenario)


def test_synced_topics_are_counted_when_they_are_on_the_followers_disk() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        for node in cluster.nodes.values():
            node.disk.set_sync_s(0.05, 0.05)
        cluster.say()
        began = cluster.loop.time()
        await asyncio.gather(*(cluster[1].append(b"%d" % number) for number in range(30)))
        assert cluster.loop.time() - began > 0.05
        for node in cluster.nodes.values():
            node.lose_power()
        for node_id in cluster.nodes:
            await cluster.restarted(node_id)
            assert len(cluster[node_id].values()) == 30

    run(scenario, topic_config={"flush.messages": "1"}, log_flush_interval_messages="1")


def test_producer_state_survives_a_change_of_leader() -> None:
    """Rule 8: who sends a batch again to the new leader gets the first offset."""

    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()

        def batch(sequence: int) -> dict[str, Any]:
            return {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}

        for sequence in range(7):
            assert await cluster[1].append(b"v", **batch(sequence)) == sequence
        cluster[1].kill()
        cluster.say(leader=2, isr=(2, 3))
        assert await cluster[2].append(b"v", **batch(4)) == 4
        assert await failure(cluster[2].append(b"v", **batch(9))) is ErrorCode.out_of_order_sequence_number
        assert await cluster[2].append(b"v", **batch(7)) == 7

    run(scenario)


def test_leadership_is_told_in_each_epoch_anew() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()
        cluster.say(leader=1)
        cluster.say(leader=2)
        assert cluster[1].led == [("led", 0), ("lost", 1), ("led", 1), ("lost", 2)]

    run(scenario)


def test_a_moved_replica_is_copied_no_faster_than_it_may_be() -> None:
    """Rule 12: and the others, which are in the ISR, are not held back."""

    async def scenario(cluster: SmallCluster) -> None:
        cluster.say(replicas=(1, 2), isr=(1, 2))
        for _ in range(20):
            await cluster[1].append(bytes(10_000))
        for node in cluster.nodes.values():
            node.config.set_dynamic({}, {cluster.side: "20000"})
        began = cluster.loop.time()
        cluster.say(replicas=(1, 2, 3), adding=(3,))
        while 3 not in cluster.state[0].isr:
            await cluster[1].append(b"v")  # the ISR goes on
            await asyncio.sleep(0.2)
        assert 8 < cluster.loop.time() - began < 15
        assert cluster[1].values() == cluster[3].values()

    for side in ("leader", "follower"):
        topic = {f"{side}.replication.throttled.replicas": "0:3", "max.message.bytes": "20000"}

        async def one(cluster: SmallCluster, side: str = side) -> None:
            cluster.side = f"{side}.replication.throttled.rate"
            await scenario(cluster)

        run(one, topic_config=topic, replica_fetch_max_bytes="15000")


def test_a_topic_that_is_made_again_is_another_topic_to_followers_too() -> None:
    """Rule 13: a fetch names the topic's id, and what it brings is for that topic only."""

    async def scenario(cluster: SmallCluster) -> None:
        cluster.say()
        await cluster[1].append(b"old")
        await cluster.until_equal()
        cluster.untold.add(3)
        cluster.make_again()
        await asyncio.gather(cluster[1].append(b"new", acks=1))
        await asyncio.sleep(2)
        assert cluster[3].values() == [b"old"]
        cluster.reach(3)
        await cluster.until_equal()
        assert cluster[3].values() == [b"new"]

    run(scenario)
