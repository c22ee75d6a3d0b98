"""When a broker stays awake for a client, and that it never does for long."""

from itertools import count

from ottla_broker.busy_poll import MOST_EARNED, SHARES, BusyPoll, Poll, PollCredit

PATIENCE_US = 200
PATIENCE = PATIENCE_US * 1000


def rhythm_of(*gaps: int) -> PollCredit:
    """After requests that came so many nanoseconds after the answer before them."""
    rhythm = PollCredit()
    for gap in gaps:
        rhythm.answered(0)
        rhythm.asked(gap, PATIENCE)
    return rhythm


def test_it_pays_once_enough_requests_came_quickly() -> None:
    assert not rhythm_of(*[PATIENCE] * (SHARES - 1)).pays
    assert rhythm_of(*[PATIENCE] * SHARES).pays


def test_a_client_that_takes_its_time_never_makes_it_pay() -> None:
    assert not rhythm_of(*[PATIENCE + 1] * 1000).pays


def test_of_a_wait_in_vain_the_next_ones_are_earned_anew() -> None:
    assert not rhythm_of(*[1] * SHARES, PATIENCE + 1).pays
    assert not rhythm_of(*[1] * SHARES, PATIENCE + 1, *[1] * (SHARES - 1)).pays


def test_after_the_longest_of_good_times_few_waits_in_vain_are_left() -> None:
    slow = MOST_EARNED // SHARES
    assert rhythm_of(*[1] * 100_000, *[PATIENCE + 1] * (slow - 1)).pays
    assert not rhythm_of(*[1] * 100_000, *[PATIENCE + 1] * slow).pays


def test_requests_that_follow_no_answer_say_nothing() -> None:
    rhythm = PollCredit()
    for _ in range(SHARES):
        rhythm.asked(1, PATIENCE)
    assert not rhythm.pays


class Loop:
    """A loop that is turned by hand. Each look at its clock takes a tenth of the patience."""

    def __init__(self) -> None:
        self._clock = count(step=PATIENCE // 10)
        self.soon: list[Poll] = []
        self.vigil = BusyPoll(self.soon.append, PATIENCE_US, lambda: next(self._clock))

    def turns_until_it_sleeps(self) -> int:
        for turn in count():
            if not self.soon:
                return turn
            self.soon.pop()()
        raise AssertionError


def test_nobody_stays_awake_for_a_new_connection() -> None:
    loop = Loop()
    loop.vigil.on_response(PollCredit())
    assert loop.turns_until_it_sleeps() == 0


def test_staying_awake_in_vain_ends_with_the_patience() -> None:
    loop = Loop()
    loop.vigil.on_response(rhythm_of(*[1] * SHARES))
    assert loop.turns_until_it_sleeps() == 10


def test_it_ends_when_the_awaited_client_asks_and_not_when_another_does() -> None:
    loop, awaited = Loop(), rhythm_of(*[1] * SHARES)
    loop.vigil.on_response(awaited)
    loop.vigil.on_request(PollCredit())
    loop.soon.pop()()
    assert loop.soon
    loop.vigil.on_request(awaited)
    assert loop.turns_until_it_sleeps() == 1
