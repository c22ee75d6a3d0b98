"""What a failover would find and lose, as the page of a mirror says it."""

from dataclasses import replace

from ottla_broker.console.mirror_description import (
    CopiedPartition,
    MirroredTopic,
    ReportedMirrorProblems,
    check_failover,
)
from ottla_broker.mirroring.mirror_config import FetchLimits, MirrorConfig
from ottla_broker.requests.mirror_status import PartitionStatus

CONFIG = MirrorConfig("west", "west:9092", ("*",), ("billing*",), "Replicate", False, True, 10.0, FetchLimits())
COPIED = PartitionStatus("Replicating", 9, 9, 0, 0.0, lag_bytes=0, silent_seconds=0.1)


def topic(*statuses: PartitionStatus | None) -> MirroredTopic:
    return MirroredTopic("t", "t", [CopiedPartition("t", index, status) for index, status in enumerate(statuses)])


def unmet_checks(*statuses: PartitionStatus | None, problems: ReportedMirrorProblems | None = None) -> list[str]:
    """The texts of the checks before a failover that are not met."""
    checks = check_failover(CONFIG, [topic(*statuses)], problems or ReportedMirrorProblems())
    return [one.text for one in checks if one.is_met is False]


def test_mirror_that_has_caught_up_meets_all_checks() -> None:
    assert unmet_checks(COPIED, COPIED) == []


def test_records_that_would_be_lost_are_counted() -> None:
    behind = changed_status(lag=7)
    assert unmet_checks(COPIED, behind, behind) == ["14 records are not copied, and would be lost here."]
    assert unmet_checks(changed_status(lag=1)) == ["1 record is not copied, and would be lost here."]


def test_unknown_lag_is_not_zero() -> None:
    assert unmet_checks(None, COPIED) == [
        "The leader of every partition reports its state; not so for t-0.",
        "Every record of the source that is known here is copied; the lag is unknown for t-0.",
    ]
    assert (topic(None, COPIED).lag, topic(COPIED).lag, topic(None, COPIED).lag_bytes) == (-1, 0, -1)


def test_silent_source_may_have_more_records_than_are_known() -> None:
    silent = changed_status(state="Unreachable", silent_seconds=41.6)
    (text,) = unmet_checks(silent, COPIED)
    assert text.startswith("The source of 1 partition has not responded for up to 42 seconds")
    assert unmet_checks(COPIED, problems=ReportedMirrorProblems("no broker responds")) == [
        "The source cannot be read: no broker responds."
    ]


def test_error_of_the_target_is_not_the_sources() -> None:
    problems = ReportedMirrorProblems(target_error="the target cluster: security_disabled")
    assert unmet_checks(COPIED, problems=problems) == [
        "Topics, groups and access rules are not synchronised: the target cluster: security_disabled."
    ]


def test_partitions_that_need_an_operator_and_refused_topics_are_named() -> None:
    stopped = changed_status(state="Stopped", why="the source has lost records")
    texts = unmet_checks(*[stopped] * 5, problems=ReportedMirrorProblems(refused={"u": "it exists here"}))
    assert texts == [
        "No partition has stopped or diverged; not so for t-0, t-1, t-2 and 2 more.",
        "No topic is refused; not so for u (it exists here).",
    ]
    assert topic(COPIED, stopped).reason == "the source has lost records"


def test_checks_after_a_failover_say_whether_producers_may_write() -> None:
    failed_over = replace(CONFIG, role="FailedOver")
    done, doing = changed_status(state="FailedOver"), changed_status(state="FailingOver")
    checks = list(check_failover(failed_over, [topic(done, doing)], ReportedMirrorProblems()))
    assert [(one.is_met, one.text) for one in checks] == [
        (True, "Copying has ended."),
        (False, "Producers may write to every partition; not so for t-1."),
    ]


def changed_status(**changes: object) -> PartitionStatus:
    """COPIED with other values of these fields."""
    fields = {name: getattr(COPIED, name) for name in COPIED.__struct_fields__}
    return PartitionStatus(**(fields | changes))
