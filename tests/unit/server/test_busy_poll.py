"""Busy polling: which connections the event loop polls for, and for how long."""

from itertools import count

from ottla_broker.busy_poll import MAX_SHARES, SHARES_PER_POLL, BusyPoll, Poll, PollCredit

MAX_US = 200
MAX_NS = MAX_US * 1000


def credit_after(*gaps: int) -> PollCredit:
    """The credit after requests, each of which came this number of ns after the previous
    response.
    """
    credit = PollCredit()
    for gap in gaps:
        credit.on_response(0)
        credit.on_request(gap, MAX_NS)
    return credit


def test_connection_earns_a_poll_with_quick_requests() -> None:
    assert not credit_after(*[MAX_NS] * (SHARES_PER_POLL - 1)).is_sufficient
    assert credit_after(*[MAX_NS] * SHARES_PER_POLL).is_sufficient


def test_a_slow_client_never_earns_a_poll() -> None:
    assert not credit_after(*[MAX_NS + 1] * 1000).is_sufficient


def test_poll_without_a_request_uses_up_the_credit() -> None:
    assert not credit_after(*[1] * SHARES_PER_POLL, MAX_NS + 1).is_sufficient
    assert not credit_after(*[1] * SHARES_PER_POLL, MAX_NS + 1, *[1] * (SHARES_PER_POLL - 1)).is_sufficient


def test_number_of_polls_without_a_request_is_bounded_after_any_number_of_quick_requests() -> None:
    slow = MAX_SHARES // SHARES_PER_POLL
    assert credit_after(*[1] * 100_000, *[MAX_NS + 1] * (slow - 1)).is_sufficient
    assert not credit_after(*[1] * 100_000, *[MAX_NS + 1] * slow).is_sufficient


def test_requests_before_the_response_earn_nothing() -> None:
    credit = PollCredit()
    for _ in range(SHARES_PER_POLL):
        credit.on_request(1, MAX_NS)
    assert not credit.is_sufficient


class ManualLoop:
    """A loop that the test runs. Each reading of its clock advances it by a tenth of the longest
    poll.
    """

    def __init__(self) -> None:
        self._clock = count(step=MAX_NS // 10)
        self.soon: list[Poll] = []
        self.busy_poll = BusyPoll(self.soon.append, MAX_US, lambda: next(self._clock))

    def count_iterations_until_idle(self) -> int:
        for turn in count():
            if not self.soon:
                return turn
            self.soon.pop()()
        raise AssertionError


def test_the_loop_does_not_poll_for_a_new_connection() -> None:
    loop = ManualLoop()
    loop.busy_poll.on_response(PollCredit())
    assert loop.count_iterations_until_idle() == 0


def test_poll_without_a_request_ends_after_its_maximum_time() -> None:
    loop = ManualLoop()
    loop.busy_poll.on_response(credit_after(*[1] * SHARES_PER_POLL))
    assert loop.count_iterations_until_idle() == 10


def test_poll_ends_only_with_a_request_of_the_awaited_client() -> None:
    loop, awaited = ManualLoop(), credit_after(*[1] * SHARES_PER_POLL)
    loop.busy_poll.on_response(awaited)
    loop.busy_poll.on_request(PollCredit())
    loop.soon.pop()()
    assert loop.soon
    loop.busy_poll.on_request(awaited)
    assert loop.count_iterations_until_idle() == 1
