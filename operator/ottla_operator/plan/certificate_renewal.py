"""When the certificates of a Cluster's own authority are issued, renewed, trusted and dropped.
Pure.

An authority has a successor long before it expires. The successor is trusted at once and issues
certificates only when it has been trusted for OVERLAP of its lifetime, so that clients have read it
by then; earlier if the authority before it expires soon. An authority is trusted until it expires.

Invariants: there is always an authority that is valid. A certificate is signed by an authority that
has been trusted for the overlap, or for half of the time that was left to the one before it, unless
no other one was valid. A certificate does not outlive its authority. It is renewed after two thirds
of its lifetime, unless it expires with its authority. After a plan is carried out, planning again
yields nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

RENEWAL: Final = 2 / 3
"""Share of its lifetime after which a certificate is renewed, or an authority gets a successor."""
OVERLAP: Final = 1 / 6
"""Share of its lifetime for which an authority is trusted before it issues certificates."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Times are seconds since 1970."""

    not_before: float
    not_after: float

    @property
    def lifetime_s(self) -> float:
        return self.not_after - self.not_before

    @property
    def renewal_time(self) -> float:
        return self.not_before + RENEWAL * self.lifetime_s

    def includes(self, now: float) -> bool:
        return self.not_before <= now < self.not_after


@dataclass(frozen=True, slots=True)
class Authority:
    """`number`: each has a higher one than those before it. `certificate`, `key`: PEM."""

    number: int
    validity: Validity
    certificate: str = ""
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """The properties that decide whether a certificate is renewed. `issuer`: the number of the
    authority that signed it; 0 if none of the Cluster's has. `names`: a server's DNS names and IP
    addresses. `subject`: a client's.
    """

    validity: Validity
    issuer: int
    names: frozenset[str] = frozenset()
    subject: str = ""


@dataclass(frozen=True, slots=True)
class DesiredCertificate:
    """`subject`: of a client; empty for a server, which is known by its names."""

    names: frozenset[str] = frozenset()
    subject: str = ""


def trusted_authorities(authorities: Collection[Authority], now: float) -> list[Authority]:
    """Those that have not expired, the oldest first."""
    return sorted((it for it in authorities if now < it.validity.not_after), key=lambda it: it.number)


def needs_authority(authorities: Collection[Authority], now: float) -> bool:
    """True if another authority has to be created: the first one, or a successor."""
    trusted = trusted_authorities(authorities, now)
    return not trusted or now >= trusted[-1].validity.renewal_time


def choose_issuer(authorities: Collection[Authority], now: float) -> Authority:
    """The newest successor that has been trusted for long enough, or else the oldest authority.
    `authorities`: at least one of them has not expired.
    """
    trusted = trusted_authorities(authorities, now)
    usable = [it for before, it in pairwise(trusted) if now >= _takeover_time(before, it)]
    return usable[-1] if usable else trusted[0]


def _takeover_time(before: Authority, successor: Authority) -> float:
    """The time at which a successor begins to issue certificates: after OVERLAP, or halfway to the
    end of the authority before it if that is earlier.
    """
    made_at = successor.validity.not_before
    return made_at + min(OVERLAP * successor.validity.lifetime_s, (before.validity.not_after - made_at) / 2)


def renewal_reason(
    current: IssuedCertificate | None, desired: DesiredCertificate, issuer: Authority, now: float
) -> str:
    """The reason why a certificate has to be issued; empty if the current one stays. `current`:
    None if there is none, or its key is another's.
    """
    if current is None:
        return "there is none that can be used"
    if not current.validity.includes(now):
        return "the previous one is not valid now"
    if current.issuer != issuer.number:
        return f"authority {issuer.number} issues certificates now"
    if missing := desired.names - current.names:
        return f"the previous one does not contain {', '.join(sorted(missing))}"
    if desired.subject and current.subject != desired.subject:
        return f"the previous one is of {current.subject}"
    # A certificate that expires with its authority is not renewed: the next would expire at the
    # same time.
    if now >= current.validity.renewal_time and current.validity.not_after < issuer.validity.not_after:
        return "two thirds of the previous one's lifetime are over"
    return ""


def new_validity(lifetime_s: float, now: float, *, issuer: Authority | None = None) -> Validity:
    """Whole seconds, as certificates have them. `issuer`: the authority that the certificate does
    not outlive; None for an authority's own.
    """
    begin = int(now)
    end = begin + int(lifetime_s)
    return Validity(begin, end if issuer is None else min(end, issuer.validity.not_after))
