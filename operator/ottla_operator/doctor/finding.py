"""A finding of `ottla doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    good = "ok"
    warning = "warning"
    problem = "problem"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one subject. `area`: machine, brokers or kubernetes. `observed`: the subject's
    state in a few words. `impact` and `next_step`: why it matters and what to do; empty if nothing
    has to be done.
    """

    area: str
    subject: str
    severity: Severity
    observed: str
    impact: str = ""
    next_step: str = ""
