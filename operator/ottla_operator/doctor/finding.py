"""What an examination has found."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    good = "ok"
    warning = "warning"
    problem = "problem"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """`area`: machine, brokers or kubernetes. `what` is examined; `seen`: what it is like. `why`
    that matters and the `next` step are empty where nothing has to be done.
    """

    area: str
    what: str
    verdict: Verdict
    seen: str
    why: str = ""
    next: str = ""
