"""Changed settings: which ones running brokers apply, and which brokers have to be restarted."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.settings import ConfigChanges, plan_config_changes

DYNAMIC = {"log.retention.ms", "min.insync.replicas"}
SETTINGS = st.dictionaries(st.sampled_from([*sorted(DYNAMIC), "num.partitions", "listeners"]), st.sampled_from("12"))


def test_without_a_change_nothing_is_set() -> None:
    assert plan_config_changes({1: {"a": "1"}}, {1: {"a": "1"}}, DYNAMIC, {}) == ConfigChanges({}, (), {})


def test_a_dynamic_setting_restarts_no_broker() -> None:
    found = plan_config_changes({1: {"log.retention.ms": "1"}}, {1: {"log.retention.ms": "2"}}, DYNAMIC, {})
    assert found == ConfigChanges({"log.retention.ms": "2"}, (), {})
    again = plan_config_changes(
        {1: {"log.retention.ms": "1"}}, {1: {"log.retention.ms": "2"}}, DYNAMIC, {"log.retention.ms": "2"}
    )
    assert again == ConfigChanges({}, (), {})


def test_a_removed_setting_needs_a_restart_if_the_broker_was_started_with_it() -> None:
    found = plan_config_changes({1: {"log.retention.ms": "1"}}, {1: {}}, DYNAMIC, {"log.retention.ms": "2"})
    assert found == ConfigChanges({}, ("log.retention.ms",), {1: ("log.retention.ms",)})
    assert plan_config_changes({1: {}}, {1: {}}, DYNAMIC, {"log.retention.ms": "2"}) == ConfigChanges(
        {}, ("log.retention.ms",), {}
    )


def test_a_setting_that_differs_between_brokers_is_not_set_for_the_cluster() -> None:
    desired = {1: {"listeners": "a"}, 2: {"listeners": "b"}}
    found = plan_config_changes({1: {}, 2: {}}, desired, {"listeners"}, {})
    assert found == ConfigChanges({}, (), {1: ("listeners",), 2: ("listeners",)})


def test_changed_bootstrap_servers_restart_no_running_broker() -> None:
    before = {"controller.quorum.bootstrap.servers": "a:1", "cluster.found": "true"}
    found = plan_config_changes({1: before}, {1: {"controller.quorum.bootstrap.servers": "a:1,b:1"}}, DYNAMIC, {})
    assert found == ConfigChanges({}, (), {})


def test_a_broker_with_unknown_settings_is_restarted() -> None:
    assert list(plan_config_changes({1: None, 2: {}}, {1: {}, 2: {}}, DYNAMIC, {}).restarts) == [1]


@given(st.dictionaries(st.integers(1, 3), SETTINGS), SETTINGS, SETTINGS)
def test_applied_changes_bring_every_broker_to_the_desired_settings(
    started: dict[int, dict[str, str]], spec: dict[str, str], cluster_settings: dict[str, str]
) -> None:
    cluster_settings = {key: value for key, value in cluster_settings.items() if key in DYNAMIC}
    desired = dict.fromkeys(started, spec)
    for _ in range(3):
        found = plan_config_changes(started, desired, DYNAMIC, cluster_settings)
        cluster_settings = {
            key: value for key, value in {**cluster_settings, **found.to_set}.items() if key not in found.to_unset
        }
        started = {id_: spec if id_ in found.restarts else settings for id_, settings in started.items()}
        assert all({**settings, **cluster_settings} == spec for settings in started.values())
    assert plan_config_changes(started, desired, DYNAMIC, cluster_settings) == ConfigChanges({}, (), {})
