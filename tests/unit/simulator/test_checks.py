"""Each check of the simulation detects its violation, and none reports a correct history."""

from uuid import UUID

import pytest

from tests.sim.checks import Contents, Topic, violations
from tests.sim.history import Ack, Commit, ExpectedTopic, History

PARTITION = ("events", 0)
ID, OTHER_ID = UUID(int=7), UUID(int=8)
TOPICS = {"events": Topic(ID, 1)}


def example_history() -> History:
    """Two batches of a producer were acknowledged; a group consumed and committed them."""
    history = History()
    history.topics["events"] = ExpectedTopic(exists=True, partitions=1)
    history.idempotent_producers.add("p")
    for number in range(3):
        history.sent[b"p/0/%d" % number] = "p"
    history.record_ack(Ack(PARTITION, ID, 0, (b"p/0/0", b"p/0/1"), broker=1, at_s=1.0, producer="p"))
    history.record_ack(Ack(PARTITION, ID, 2, (b"p/0/2",), broker=1, at_s=2.0, producer="p"))
    for offset in range(3):
        history.record_consumed("g", PARTITION, offset, b"p/0/%d" % offset)
    history.record_commit(Commit("g", PARTITION, 3, at_s=3.0))
    return history


def contents_of(*values: bytes) -> Contents:
    return {PARTITION: dict(enumerate(values))}


ALL_VALUES = (b"p/0/0", b"p/0/1", b"p/0/2")


def test_kept_records_violate_nothing() -> None:
    assert violations(example_history(), contents_of(*ALL_VALUES), TOPICS) == []


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (contents_of(*ALL_VALUES[:2]), "lost"),
        (contents_of(b"p/0/0", b"p/0/2", b"p/0/1"), "replaced"),
        (contents_of(b"p/0/0", b"p/0/2", b"p/0/1"), "out of order"),
        (contents_of(*ALL_VALUES, b"p/0/2"), "duplicate"),
        (contents_of(*ALL_VALUES, b"x"), "not sent"),
        (contents_of(*ALL_VALUES[:2]), "changed"),
    ],
)
def test_wrong_records_are_detected(found: Contents, word: str) -> None:
    assert any(word in violation for violation in violations(example_history(), found, TOPICS))


def test_committed_records_that_were_not_consumed_are_detected() -> None:
    history = example_history()
    del history.consumed["g"][PARTITION][1]
    (violation,) = violations(history, contents_of(*ALL_VALUES), TOPICS)
    assert "skipped" in violation


def test_high_watermark_may_be_lower_only_in_an_older_epoch() -> None:
    history = example_history()
    history.record_high_watermark(PARTITION, 1, 10, known_at_request=0)
    history.record_high_watermark(PARTITION, 0, 4, known_at_request=history.high_watermark(PARTITION, 0))
    assert history.violations == []
    history.record_high_watermark(PARTITION, 1, 9, known_at_request=history.high_watermark(PARTITION, 1))
    history.record_high_watermark(PARTITION, 2, 9, known_at_request=history.high_watermark(PARTITION, 2))
    assert len(history.violations) == 2


def test_decreasing_committed_offset_is_detected() -> None:
    history = example_history()
    history.check_committed("g", PARTITION, 2, known_at_request=history.committed_offsets["g", PARTITION])
    assert "went back" in history.violations[0]


def test_topics_must_match_the_acknowledgements() -> None:
    history = example_history()
    history.topics["gone"] = ExpectedTopic(exists=False)
    history.topics["exists"] = ExpectedTopic(exists=True, partitions=3)
    history.topics["unknown"] = ExpectedTopic()
    found = TOPICS | {"gone": Topic(OTHER_ID, 1), "exists": Topic(OTHER_ID, 2), "unknown": Topic(OTHER_ID, 1)}
    assert len(violations(history, contents_of(*ALL_VALUES), found)) == 2
    del found["exists"]
    assert len(violations(history, contents_of(*ALL_VALUES), found)) == 2


def test_recreated_topic_has_no_records_of_the_old_one() -> None:
    topics = {"events": Topic(OTHER_ID, 1)}
    history = example_history()
    history.topics["events"].deletion_requested = True
    history.consumed.clear()
    history.committed_offsets.clear()
    assert violations(history, {}, topics) == []
    assert any("of another topic" in violation for violation in violations(history, contents_of(b"p/0/0"), topics))
    history.topics["events"].deletion_requested = False
    assert any("no client requested" in violation for violation in violations(history, {}, topics))
