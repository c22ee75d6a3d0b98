"""Token buckets and the precedence of quotas, on a clock of the test's own."""

import itertools
import math
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.security.client_quota_manager import (
    MAX_IDLE,
    MAX_REPORTED,
    OTHERS,
    ClientQuotaManager,
    QuotaWindows,
)
from ottla_broker.security.client_quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from ottla_broker.security.quota_precedence import find_client_quota, find_ip_quota
from ottla_broker.security.token_bucket import TokenBucket

BURST_S = 10.0


def simulate_eager_client(
    limit: float, sizes: Iterator[int], until_s: float, round_trip_s: float
) -> list[tuple[float, int]]:
    """(time, bytes) of requests of a client that waits only for responses and throttle times."""
    bucket, now_s, sent = TokenBucket(BURST_S), 0.0, list[tuple[float, int]]()
    while now_s < until_s:
        size = next(sizes)
        bucket.take(size, limit, now_s)
        sent.append((now_s, size))
        now_s += round_trip_s + math.ceil(bucket.throttle_time_s(limit, now_s) * 1000) / 1000
    return sent


@given(
    st.floats(1e3, 1e8),
    st.lists(st.floats(0.02, 0.5), min_size=1, max_size=5),
    st.floats(0.0001, 0.01),
)
@settings(max_examples=100, deadline=None)
def test_rate_of_an_eager_client_is_within_two_percent_of_its_quota_over_a_minute(
    limit: float, shares: list[float], round_trip_s: float
) -> None:
    """Requests of up to half a second's quota each; the minute begins after the first burst."""
    sizes = itertools.cycle([max(int(share * limit), 1) for share in shares])
    sent = simulate_eager_client(limit, sizes, 90.0, round_trip_s)
    over_a_minute = sum(size for at_s, size in sent if 25.0 <= at_s < 85.0)
    assert abs(over_a_minute / (60 * limit) - 1) <= 0.02


def test_idle_client_may_use_its_burst_at_once_and_then_waits_by_kafkas_formula() -> None:
    bucket = TokenBucket(BURST_S)
    bucket.take(1000, 100.0, 50.0)
    assert bucket.throttle_time_s(100.0, 50.0) == 0.0
    bucket.take(500, 100.0, 50.0)
    observed = 1500 / BURST_S
    assert bucket.throttle_time_s(100.0, 50.0) == pytest.approx((observed - 100) / 100 * BURST_S)


def test_bucket_holds_no_more_than_its_burst_after_any_pause() -> None:
    bucket = TokenBucket(BURST_S)
    bucket.take(1, 100.0, 0.0)
    assert not bucket.is_full(100.0, 0.005)
    assert bucket.is_full(100.0, 1e6) and bucket.tokens(100.0, 1e6) == 1000.0


@given(st.floats(0.1, 100), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=80))
def test_bucket_accepts_no_more_than_its_burst_and_its_rate(limit: float, steps: list[tuple[float, int]]) -> None:
    bucket, now_s, accepted = TokenBucket(BURST_S), 100.0, 0
    for pause_s, partitions in steps:
        now_s += pause_s
        if bucket.throttle_time_s(limit, now_s) > 0:
            continue
        assert accepted <= limit * (BURST_S + now_s - 100.0) + 1e-6  # before a request that may take it below zero
        bucket.take(partitions, limit, now_s)
        accepted += partitions


@given(st.floats(0.1, 100), st.integers(1, 5000))
def test_bucket_accepts_again_after_its_throttle_time_and_not_before(limit: float, partitions: int) -> None:
    bucket = TokenBucket(BURST_S)
    bucket.take(partitions, limit, 0.0)
    wait_s = bucket.throttle_time_s(limit, 0.0)
    assert wait_s == pytest.approx(max(partitions / limit - BURST_S, 0.0))
    if wait_s > 1e-3:
        assert bucket.throttle_time_s(limit, wait_s * 0.99) > 0
    assert bucket.throttle_time_s(limit, wait_s * 1.001 + 1e-9) == 0


Quotas = dict[QuotaEntity, Mapping[str, float]]
USERS, CLIENTS = ("alice", "bob"), ("a", "b")
ORDER = "uc u* u- *c ** *- -c -*"  # Kafka's documentation, from the most specific to the least


@given(
    st.dictionaries(
        st.tuples(st.sampled_from((*USERS, None, "-")), st.sampled_from((*CLIENTS, None, "-"))).filter(
            lambda pair: pair != ("-", "-")
        ),
        st.floats(1, 100),
    ),
    st.sampled_from(USERS),
    st.sampled_from(CLIENTS),
)
def test_the_most_specific_quota_applies(
    given_quotas: dict[tuple[str | None, str | None], float], user: str, client_id: str
) -> None:
    """`-`: the entity has no such part."""
    quotas: Quotas = {}
    for (of_user, of_client), limit in given_quotas.items():
        parts = [("user", of_user)] if of_user != "-" else []
        parts += [("client-id", of_client)] if of_client != "-" else []
        quotas[tuple(parts)] = {PRODUCER_BYTE_RATE: limit}
    names: dict[str, str | None] = {"u": user, "c": client_id, "*": None, "-": "-"}
    ranked = [(names[level[0]], names[level[1]]) for level in ORDER.split()]
    expected = next((given_quotas[pair] for pair in ranked if pair in given_quotas), None)
    found = find_client_quota(quotas, PRODUCER_BYTE_RATE, user, client_id)
    assert (found and found.limit) == expected


def test_default_quota_of_an_entity_type_applies_to_each_name_by_itself() -> None:
    of_users: Quotas = {(("user", None),): {PRODUCER_BYTE_RATE: 1.0}}
    assert find_client_quota(of_users, PRODUCER_BYTE_RATE, "alice", "a") == ("alice", "", 1.0)
    of_clients: Quotas = {(("client-id", None),): {PRODUCER_BYTE_RATE: 1.0}}
    assert find_client_quota(of_clients, PRODUCER_BYTE_RATE, "alice", "a") == ("", "a", 1.0)


def test_quota_of_an_address_takes_precedence_over_the_default() -> None:
    quotas: Quotas = {
        (("ip", None),): {"connection_creation_rate": 1.0},
        (("ip", "::1"),): {"connection_creation_rate": 2.0},
    }
    assert find_ip_quota(quotas, "connection_creation_rate", "::1") == 2.0
    assert find_ip_quota(quotas, "connection_creation_rate", "10.0.0.1") == 1.0


def test_memory_and_metrics_stay_bounded_while_a_client_makes_up_ids() -> None:
    now_s = 0.0
    manager = ClientQuotaManager(QuotaWindows(), lambda: now_s)
    each = {PRODUCER_BYTE_RATE: 1.0, CONTROLLER_MUTATION_RATE: 1.0}
    manager.update({(("client-id", None),): each})
    for number in range(6 * MAX_IDLE):
        now_s += 0.01
        produce = manager.of_client("mallory", f"id-{number}").produce
        assert produce is not None
        produce.take(100, now_s)
        produce.count_throttled(0.005)
    assert len(manager._used) <= 4 * MAX_IDLE
    assert len(manager._clients) <= MAX_IDLE
    assert len(manager.throttled) <= MAX_REPORTED + 2
    others = manager.throttled[PRODUCER_BYTE_RATE, OTHERS, ""]
    assert (
        others.count + sum(one.count for usage, one in manager.throttled.items() if usage[1:] != (OTHERS, ""))
        == 6 * MAX_IDLE
    )


def test_changed_quota_counts_what_was_used_before() -> None:
    manager = ClientQuotaManager(QuotaWindows(), lambda: 0.0)
    assert not manager.is_active
    manager.update({(("user", "alice"),): {PRODUCER_BYTE_RATE: 100.0}})
    assert manager.is_active
    produce = manager.of_client("alice", "a").produce
    assert produce is not None
    produce.take(1100, 0.0)
    assert produce.throttle_time_s(0.0) == 1
    manager.update({(("user", "alice"),): {PRODUCER_BYTE_RATE: 50.0}})
    changed = manager.of_client("alice", "b").produce
    assert changed is not None
    assert changed.throttle_time_s(0.0) == 2
    manager.update({})
    assert not manager.is_active
    assert manager.of_client("alice", "a").produce is None
