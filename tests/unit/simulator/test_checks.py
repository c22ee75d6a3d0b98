"""Each check notices what it is there for, and nothing else."""

from uuid import UUID

import pytest

from tests.sim.checks import Contents, Topic, broken_promises
from tests.sim.history import Ack, Commit, History, TopicFate

PLACE = ("events", 0)
ID, OTHER_ID = UUID(int=7), UUID(int=8)
TOPICS = {"events": Topic(ID, 1)}


def told() -> History:
    """A producer had two batches acknowledged, and a group read and committed them."""
    history = History()
    history.topics["events"] = TopicFate(there=True, partitions=1)
    history.once.add("p")
    for number in range(3):
        history.sent[b"p/0/%d" % number] = "p"
    history.acked(Ack(PLACE, ID, 0, (b"p/0/0", b"p/0/1"), broker=1, at_s=1.0, producer="p"))
    history.acked(Ack(PLACE, ID, 2, (b"p/0/2",), broker=1, at_s=2.0, producer="p"))
    for offset in range(3):
        history.consumed("g", PLACE, offset, b"p/0/%d" % offset)
    history.acked_commit(Commit("g", PLACE, 3, at_s=3.0))
    return history


def kept(*values: bytes) -> Contents:
    return {PLACE: dict(enumerate(values))}


WHOLE = (b"p/0/0", b"p/0/1", b"p/0/2")


def test_what_was_kept_breaks_nothing() -> None:
    assert broken_promises(told(), kept(*WHOLE), TOPICS) == []


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (kept(*WHOLE[:2]), "lost"),
        (kept(b"p/0/0", b"p/0/2", b"p/0/1"), "replaced"),
        (kept(b"p/0/0", b"p/0/2", b"p/0/1"), "out of order"),
        (kept(*WHOLE, b"p/0/2"), "doubled"),
        (kept(*WHOLE, b"x"), "nobody sent"),
        (kept(*WHOLE[:2]), "unread"),
    ],
)
def test_records_that_are_not_as_promised_are_noticed(found: Contents, word: str) -> None:
    assert any(word in promise for promise in broken_promises(told(), found, TOPICS))


def test_a_stretch_that_was_committed_and_not_seen_is_noticed() -> None:
    history = told()
    del history.seen["g"][PLACE][1]
    (broken,) = broken_promises(history, kept(*WHOLE), TOPICS)
    assert "skipped" in broken


def test_a_high_watermark_may_be_older_only_as_far_as_its_epoch_is() -> None:
    history = told()
    history.told_high_watermark(PLACE, 1, 10, known_when_asked=0)
    history.told_high_watermark(PLACE, 0, 4, known_when_asked=history.high_watermark(PLACE, 0))
    assert history.problems == []
    history.told_high_watermark(PLACE, 1, 9, known_when_asked=history.high_watermark(PLACE, 1))
    history.told_high_watermark(PLACE, 2, 9, known_when_asked=history.high_watermark(PLACE, 2))
    assert len(history.problems) == 2


def test_a_commit_that_goes_back_is_noticed() -> None:
    history = told()
    history.told_committed("g", PLACE, 2, known_when_asked=history.committed["g", PLACE])
    assert "went back" in history.problems[0]


def test_topics_are_there_or_not_as_was_said() -> None:
    history = told()
    history.topics["gone"] = TopicFate(there=False)
    history.topics["there"] = TopicFate(there=True, partitions=3)
    history.topics["who knows"] = TopicFate()
    found = TOPICS | {"gone": Topic(OTHER_ID, 1), "there": Topic(OTHER_ID, 2), "who knows": Topic(OTHER_ID, 1)}
    assert len(broken_promises(history, kept(*WHOLE), found)) == 2
    del found["there"]
    assert len(broken_promises(history, kept(*WHOLE), found)) == 2


def test_a_topic_that_was_made_anew_owes_nothing_and_holds_nothing_of_the_old_one() -> None:
    topics = {"events": Topic(OTHER_ID, 1)}
    history = told()
    history.topics["events"].leaving = True
    history.seen.clear()
    history.committed.clear()
    assert broken_promises(history, {}, topics) == []
    assert any("of another topic" in promise for promise in broken_promises(history, kept(b"p/0/0"), topics))
    history.topics["events"].leaving = False
    assert any("nobody asked" in promise for promise in broken_promises(history, {}, topics))
