"""Reasons, from Kubernetes' events, why pods do not exist or do not start."""

from typing import Any

from ottla_operator.plan.observed_events import creation_failure, start_failure


def event(reason: str, message: str, at: str) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": at}, "reason": reason, "message": message, "lastTimestamp": at}


QUOTA = event("FailedCreate", "create Pod demo-1 failed:\n exceeded quota", "2026-01-01T00:00:05Z")
OLDER = event("FailedCreate", "service account not found", "2026-01-01T00:00:01Z")
OTHER = event("RecreatingFailedPod", "recreating", "2026-01-01T00:00:09Z")


def test_the_newest_failure_is_reported_in_one_line() -> None:
    assert creation_failure([QUOTA, OLDER, OTHER], "") == "create Pod demo-1 failed: exceeded quota"
    assert creation_failure([OTHER], "") == ""


def test_a_failure_before_the_newest_pod_is_outdated() -> None:
    assert creation_failure([QUOTA], "2026-01-01T00:00:06Z") == ""
    assert creation_failure([QUOTA], "2026-01-01T00:00:05Z") != ""


def test_a_pod_that_does_not_start_has_its_newest_warning_as_the_reason() -> None:
    mount = event("FailedMount", 'secret "certs" not found', "2026-01-01T00:00:07Z")
    assert start_failure([QUOTA, mount], "2026-01-01T00:00:00Z") == 'FailedMount: secret "certs" not found'
    assert start_failure([mount], "2026-01-01T00:00:08Z") == ""


def test_an_event_of_the_newer_api_is_dated_by_its_creation() -> None:
    assert start_failure([{"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "reason": "X"}], "") == "X: "
