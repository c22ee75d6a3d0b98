"""Entities, values and filters of client quotas."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.client_quotas import (
    CLIENT_KEYS,
    ENTITY_TYPES,
    QuotaEntity,
    QuotaFilter,
    check_value,
    make_entity,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError

USER: QuotaEntity = (("user", "alice"),)
IP: QuotaEntity = (("ip", "10.0.0.1"),)
names = st.sampled_from(("a", "b", None))
entities = st.one_of(
    st.builds(lambda name: (("user", name),), names),
    st.builds(lambda name: (("client-id", name),), names),
    st.builds(lambda user, client: (("user", user), ("client-id", client)), names, names),
    st.builds(lambda name: (("ip", name),), st.sampled_from(("10.0.0.1", None))),
)
components = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ENTITY_TYPES), st.just(0), st.sampled_from(("a", "b", "10.0.0.1"))),
        st.tuples(st.sampled_from(ENTITY_TYPES), st.sampled_from((1, 2)), st.none()),
    ),
    max_size=3,
    unique_by=lambda one: one[0],
)


@given(entities)
def test_order_of_the_parts_does_not_matter(entity: QuotaEntity) -> None:
    assert make_entity(reversed(entity)) == make_entity(entity) == entity


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "empty"),
        ([("group", "g")], "'group'"),
        ([("user", "")], "user"),
        ([("user", "a"), ("user", "b")], "twice"),
        ([("user", "a"), ("ip", "10.0.0.1")], "no user"),
        ([("ip", "localhost")], "'localhost'"),
    ],
)
def test_entities_that_can_have_no_quota_are_refused(parts: list[tuple[str, str | None]], text: str) -> None:
    with pytest.raises(KafkaError, match=text) as refused:
        make_entity(parts)
    assert refused.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER, "producer_byte_rate", 0.0),
        (USER, "producer_byte_rate", -1.0),
        (USER, "producer_byte_rate", 10.5),
        (USER, "consumer_byte_rate", 1e19),
        (USER, "request_percentage", math.nan),
        (USER, "controller_mutation_rate", math.inf),
        (USER, "connection_creation_rate", 1.0),
        (IP, "producer_byte_rate", 1.0),
        (IP, "connection_creation_rate", 2.0**31),
    ],
)
def test_values_that_no_quota_can_have_are_refused(entity: QuotaEntity, key: str, value: float) -> None:
    with pytest.raises(KafkaError, match=key) as refused:
        check_value(entity, key, value)
    assert refused.value.code is ErrorCode.invalid_request


@given(st.sampled_from(CLIENT_KEYS), st.integers(1, 2**62))
def test_whole_numbers_are_values_of_every_client_quota(key: str, value: int) -> None:
    check_value(USER, key, float(value))


@given(entities, components, st.booleans())
def test_filter_selects_what_a_naive_reading_of_it_selects(
    entity: QuotaEntity, wanted: list[tuple[str, int, str | None]], is_strict: bool
) -> None:
    types = [kind for kind, _, _ in wanted]
    if "ip" in types and len(types) > 1:
        with pytest.raises(KafkaError, match="ip"):
            QuotaFilter.from_components(wanted, is_strict=is_strict)
        return
    parts = dict(entity)
    naive = all(kind in parts and (how == 2 or parts[kind] == name) for kind, how, name in wanted)
    if is_strict:
        naive = naive and set(parts) == set(types)
    assert QuotaFilter.from_components(wanted, is_strict=is_strict).selects(entity) == naive
