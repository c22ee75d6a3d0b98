"""Changed settings: what running brokers take, and who has to be started again."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.settings import SettingsPlan, settings_plan

DYNAMIC = {"log.retention.ms", "min.insync.replicas"}
SETTINGS = st.dictionaries(st.sampled_from([*sorted(DYNAMIC), "num.partitions", "listeners"]), st.sampled_from("12"))


def test_nothing_changed() -> None:
    assert settings_plan({1: {"a": "1"}}, {1: {"a": "1"}}, DYNAMIC, {}) == SettingsPlan({}, (), {})


def test_what_running_brokers_take_restarts_nobody() -> None:
    found = settings_plan({1: {"log.retention.ms": "1"}}, {1: {"log.retention.ms": "2"}}, DYNAMIC, {})
    assert found == SettingsPlan({"log.retention.ms": "2"}, (), {})
    again = settings_plan(
        {1: {"log.retention.ms": "1"}}, {1: {"log.retention.ms": "2"}}, DYNAMIC, {"log.retention.ms": "2"}
    )
    assert again == SettingsPlan({}, (), {})


def test_what_is_taken_out_again_needs_a_start_if_it_was_started_with() -> None:
    found = settings_plan({1: {"log.retention.ms": "1"}}, {1: {}}, DYNAMIC, {"log.retention.ms": "2"})
    assert found == SettingsPlan({}, ("log.retention.ms",), {1: ("log.retention.ms",)})
    assert settings_plan({1: {}}, {1: {}}, DYNAMIC, {"log.retention.ms": "2"}) == SettingsPlan(
        {}, ("log.retention.ms",), {}
    )


def test_what_each_broker_has_for_itself_is_not_set_for_all() -> None:
    wanted = {1: {"listeners": "a"}, 2: {"listeners": "b"}}
    found = settings_plan({1: {}, 2: {}}, wanted, {"listeners"}, {})
    assert found == SettingsPlan({}, (), {1: ("listeners",), 2: ("listeners",)})


def test_a_broker_of_which_nothing_is_known_is_started_again() -> None:
    assert list(settings_plan({1: None, 2: {}}, {1: {}, 2: {}}, DYNAMIC, {}).restart) == [1]


@given(st.dictionaries(st.integers(1, 3), SETTINGS), SETTINGS, SETTINGS)
def test_doing_it_brings_every_broker_what_is_wished(
    started: dict[int, dict[str, str]], wish: dict[str, str], ours: dict[str, str]
) -> None:
    ours = {key: value for key, value in ours.items() if key in DYNAMIC}
    wanted = dict.fromkeys(started, wish)
    for _ in range(3):
        found = settings_plan(started, wanted, DYNAMIC, ours)
        ours = {key: value for key, value in {**ours, **found.put}.items() if key not in found.drop}
        started = {id_: wish if id_ in found.restart else settings for id_, settings in started.items()}
        assert all({**settings, **ours} == wish for settings in started.values())
    assert settings_plan(started, wanted, DYNAMIC, ours) == SettingsPlan({}, (), {})
