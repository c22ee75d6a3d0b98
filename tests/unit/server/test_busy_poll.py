"""When the loop polls for a client, and for how long."""

from itertools import count

from ottla_broker.busy_poll import MAX_SHARES, SHARES_PER_POLL, BusyPoll, Poll, PollCredit

MAX_US = 200
MAX_NS = MAX_US * 1000


def credit_after(*gaps: int) -> PollCredit:
    """After requests that came so many nanoseconds after the answer before them."""
    credit = PollCredit()
    for gap in gaps:
        credit.on_response(0)
        credit.on_request(gap, MAX_NS)
    return credit


def test_a_connection_earns_a_poll_with_quick_requests() -> None:
    assert not credit_after(*[MAX_NS] * (SHARES_PER_POLL - 1)).is_sufficient
    assert credit_after(*[MAX_NS] * SHARES_PER_POLL).is_sufficient


def test_a_slow_client_never_earns_a_poll() -> None:
    assert not credit_after(*[MAX_NS + 1] * 1000).is_sufficient


def test_after_a_poll_in_vain_the_next_is_earned_again() -> None:
    assert not credit_after(*[1] * SHARES_PER_POLL, MAX_NS + 1).is_sufficient
    assert not credit_after(*[1] * SHARES_PER_POLL, MAX_NS + 1, *[1] * (SHARES_PER_POLL - 1)).is_sufficient


def test_few_polls_in_vain_follow_the_longest_row_of_quick_requests() -> None:
    slow = MAX_SHARES // SHARES_PER_POLL
    assert credit_after(*[1] * 100_000, *[MAX_NS + 1] * (slow - 1)).is_sufficient
    assert not credit_after(*[1] * 100_000, *[MAX_NS + 1] * slow).is_sufficient


def test_requests_before_the_response_earn_nothing() -> None:
    credit = PollCredit()
    for _ in range(SHARES_PER_POLL):
        credit.on_request(1, MAX_NS)
    assert not credit.is_sufficient


class Loop:
    """A loop that is turned by hand. Each reading of its clock takes a tenth of the longest poll."""

    def __init__(self) -> None:
        self._clock = count(step=MAX_NS // 10)
        self.soon: list[Poll] = []
        self.busy_poll = BusyPoll(self.soon.append, MAX_US, lambda: next(self._clock))

    def turns_until_it_sleeps(self) -> int:
        for turn in count():
            if not self.soon:
                return turn
            self.soon.pop()()
        raise AssertionError


def test_the_loop_does_not_poll_for_a_new_connection() -> None:
    loop = Loop()
    loop.busy_poll.on_response(PollCredit())
    assert loop.turns_until_it_sleeps() == 0


def test_a_poll_in_vain_ends_after_its_time() -> None:
    loop = Loop()
    loop.busy_poll.on_response(credit_after(*[1] * SHARES_PER_POLL))
    assert loop.turns_until_it_sleeps() == 10


def test_a_poll_ends_with_a_request_of_the_awaited_client_only() -> None:
    loop, awaited = Loop(), credit_after(*[1] * SHARES_PER_POLL)
    loop.busy_poll.on_response(awaited)
    loop.busy_poll.on_request(PollCredit())
    loop.soon.pop()()
    assert loop.soon
    loop.busy_poll.on_request(awaited)
    assert loop.turns_until_it_sleeps() == 1
