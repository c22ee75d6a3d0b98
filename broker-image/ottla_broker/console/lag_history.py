"""Lag of groups in the last hour, kept in memory for the groups whose pages are open."""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

SAMPLE_INTERVAL_S: Final = 30.0
MAX_SAMPLES: Final = 120
"""An hour."""
KEPT_S: Final = 3600.0
"""How long a group is sampled after its page was open last."""
MAX_GROUPS: Final = 20
"""Each costs two or more requests per interval. At the limit, the group whose page was open least
recently is dropped for a new one."""
MAX_TOPICS: Final = 100
"""Of one group. A sample has the lag of each topic, because users see the topics that they may
describe. With all the bounds, the history has at most 240,000 numbers."""


@dataclass(frozen=True, slots=True)
class LagSample:
    """`lags`: records by topic. `at_s`: seconds since 1970."""

    at_s: float
    lags: Mapping[str, int]


@dataclass(slots=True)
class SampledGroup:
    """`seen_s`: when the group's page was open last, in seconds since 1970."""

    seen_s: float
    samples: deque[LagSample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))


class LagHistory:
    """`now_s`: seconds since 1970."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, SampledGroup] = OrderedDict()

    def open(self, group: str, now_s: float) -> None:
        """Begins to keep samples of the group. Called when its page is opened."""
        if group not in self._groups and len(self._groups) >= MAX_GROUPS:
            self._groups.popitem(last=False)
        self._groups.setdefault(group, SampledGroup(now_s))
        self.renew(group, now_s)

    def renew(self, group: str, now_s: float) -> None:
        """Called while the group's page is open."""
        if (found := self._groups.get(group)) is not None:
            found.seen_s = now_s
            self._groups.move_to_end(group)

    def is_sampled(self, group: str, now_s: float) -> bool:
        """False once the page was closed KEPT_S ago, or other groups have taken the group's place.
        Then its samples are gone.
        """
        found = self._groups.get(group)
        if found is not None and now_s - found.seen_s > KEPT_S:
            del self._groups[group]
            return False
        return found is not None

    def add(self, group: str, sample: LagSample) -> None:
        """Keeps a sample, unless it has more than MAX_TOPICS."""
        if (found := self._groups.get(group)) is not None and len(sample.lags) <= MAX_TOPICS:
            found.samples.append(sample)

    def columns(self, group: str, may_describe: Callable[[str], bool]) -> dict[str, list[float]]:
        """Times (`at_s`) and lags in records (`lag`) of the topics that the user may describe, as
        lists of equal length, which uPlot draws. Empty ones for a group that is not sampled.
        """
        found = self._groups.get(group)
        samples = [] if found is None else list(found.samples)
        visible = {topic for topic in {topic for one in samples for topic in one.lags} if may_describe(topic)}
        return {
            "at_s": [one.at_s for one in samples],
            "lag": [sum(lag for topic, lag in one.lags.items() if topic in visible) for one in samples],
        }
