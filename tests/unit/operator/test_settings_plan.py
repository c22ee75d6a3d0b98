"""Changed settings: what running brokers take, and who has to be started again."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.settings import ConfigChanges, plan_config_changes

DYNAMIC = {"log.retention.ms", "min.insync.replicas"}
SETTINGS = st.dictionaries(st.sampled_from([*sorted(DYNAMIC), "num.partitions", "listeners"]), st.sampled_from("12"))


def test_nothing_changed() -> None:
    assert plan_config_changes({1: {"a": "1"}}, {1: {"a": "1"}}, DYNAMIC, {}) == ConfigChanges({}, (), {})


def test_what_running_brokers_take_restarts_nobody() -> None:
    found = plan_config_changes({1: {"log.retention.ms": "1"}}, {1: {"log.retention.ms": "2"}}, DYNAMIC, {})
    assert found == ConfigChanges({"log.retention.ms": "2"}, (), {})
    again = plan_config_changes(
        {1: {"log.retention.ms": "1"}}, {1: {"log.retention.ms": "2"}}, DYNAMIC, {"log.retention.ms": "2"}
    )
    assert again == ConfigChanges({}, (), {})


def test_what_is_taken_out_again_needs_a_start_if_it_was_started_with() -> None:
    found = plan_config_changes({1: {"log.retention.ms": "1"}}, {1: {}}, DYNAMIC, {"log.retention.ms": "2"})
    assert found == ConfigChanges({}, ("log.retention.ms",), {1: ("log.retention.ms",)})
    assert plan_config_changes({1: {}}, {1: {}}, DYNAMIC, {"log.retention.ms": "2"}) == ConfigChanges(
        {}, ("log.retention.ms",), {}
    )


def test_what_each_broker_has_for_itself_is_not_set_for_all() -> None:
    wanted = {1: {"listeners": "a"}, 2: {"listeners": "b"}}
    found = plan_config_changes({1: {}, 2: {}}, wanted, {"listeners"}, {})
    assert found == ConfigChanges({}, (), {1: ("listeners",), 2: ("listeners",)})


def test_a_broker_of_which_nothing_is_known_is_started_again() -> None:
    assert list(plan_config_changes({1: None, 2: {}}, {1: {}, 2: {}}, DYNAMIC, {}).restarts) == [1]


@given(st.dictionaries(st.integers(1, 3), SETTINGS), SETTINGS, SETTINGS)
def test_doing_it_brings_every_broker_what_is_wished(
    started: dict[int, dict[str, str]], wish: dict[str, str], ours: dict[str, str]
) -> None:
    ours = {key: value for key, value in ours.items() if key in DYNAMIC}
    wanted = dict.fromkeys(started, wish)
    for _ in range(3):
        found = plan_config_changes(started, wanted, DYNAMIC, ours)
        ours = {key: value for key, value in {**ours, **found.to_set}.items() if key not in found.to_unset}
        started = {id_: wish if id_ in found.restarts else settings for id_, settings in started.items()}
        assert all({**settings, **ours} == wish for settings in started.values())
    assert plan_config_changes(started, wanted, DYNAMIC, ours) == ConfigChanges({}, (), {})
