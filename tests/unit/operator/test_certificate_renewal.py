"""When certificates of a Cluster's own authority are issued, renewed, trusted and dropped, with
time as input.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.certificate_renewal import (
    OVERLAP,
    Authority,
    DesiredCertificate,
    IssuedCertificate,
    Validity,
    choose_issuer,
    needs_authority,
    new_validity,
    renewal_reason,
    trusted_authorities,
)

DAY = 86_400
NAMES = frozenset({"localhost"})


@dataclass
class Store:
    """The stored certificates of one Cluster. `first_signed`: number of an authority →
    when it first signed a certificate.
    """

    authorities: list[Authority] = field(default_factory=list)
    certificate: IssuedCertificate | None = None
    first_signed: dict[int, float] = field(default_factory=dict)

    def carry_out_plan(self, now: float, authority_s: float, certificate_s: float) -> int:
        """Carries out the plan as the operator does. Returns how many authorities and certificates
        it created.
        """
        made = 0
        if needs_authority(self.authorities, now):
            number = max((it.number for it in self.authorities), default=0) + 1
            self.authorities.append(Authority(number, new_validity(authority_s, now)))
            made += 1
        self.authorities = trusted_authorities(self.authorities, now)
        issuer = choose_issuer(self.authorities, now)
        if renewal_reason(self.certificate, DesiredCertificate(NAMES), issuer, now):
            validity = new_validity(certificate_s, now, issuer=issuer)
            self.certificate = IssuedCertificate(validity, issuer.number, NAMES)
            self.first_signed.setdefault(issuer.number, now)
            made += 1
        return made


lifetimes = st.tuples(st.integers(10, 2000), st.integers(1, 400)).map(
    lambda it: (float(it[0] * DAY), float(min(it) * DAY))
)


@given(st.lists(st.tuples(st.integers(1, 4000 * DAY), lifetimes), max_size=40))
def test_brokers_always_present_a_valid_certificate_of_a_trusted_authority(
    steps: list[tuple[int, tuple[float, float]]],
) -> None:
    store, now = Store(), 1_700_000_000.0
    for pause_s, (authority_s, certificate_s) in steps:
        now += pause_s
        store.carry_out_plan(now, authority_s, certificate_s)
        assert store.certificate is not None
        (issuer,) = [it for it in store.authorities if it.number == store.certificate.issuer]
        assert issuer.validity.includes(now)
        assert store.certificate.validity.includes(now)
        assert store.certificate.validity.not_after <= issuer.validity.not_after
        assert store.carry_out_plan(now, authority_s, certificate_s) == 0, "nothing is left to create"


@given(lifetimes, st.lists(st.floats(0.01, 1), min_size=1, max_size=300))
def test_while_an_operator_runs_no_certificate_expires_and_no_authority_signs_before_clients_know_it(
    validity: tuple[float, float], pauses: list[float]
) -> None:
    authority_s, certificate_s = validity
    store, now, longest_pause_s = Store(), 1_700_000_000.0, certificate_s / 12
    for share in pauses:
        store.carry_out_plan(now, authority_s, certificate_s)
        now += share * longest_pause_s
        assert store.certificate is not None
        assert store.certificate.validity.includes(now), "it was renewed before it expired"
        assert store.authorities[-1].validity.includes(now)
    for it in store.authorities[1:]:
        if (signed_at := store.first_signed.get(it.number)) is not None:
            known_for_s = signed_at - it.validity.not_before
            assert known_for_s >= OVERLAP * authority_s - longest_pause_s


def test_a_successor_is_created_after_two_thirds_of_an_authoritys_validity_and_signs_after_five_sixths() -> None:
    store = Store()
    events: dict[int, list[int]] = {}
    for day in range(1300):
        store.carry_out_plan(day * DAY, 600 * DAY, 90 * DAY)
        assert store.certificate is not None
        events.setdefault(store.certificate.issuer, []).append(day)
        if day == 399:
            assert [it.number for it in store.authorities] == [1]
        if day == 400:
            assert [it.number for it in store.authorities] == [1, 2], "a successor after two thirds"
    assert events[1][0] == 0
    assert events[2][0] == 500, "the successor signs after five sixths"
    assert events[3][0] == 900
    assert [it.number for it in store.authorities] == [3, 4]


def test_a_certificate_is_renewed_for_missing_names_another_subject_and_after_two_thirds_of_its_validity() -> None:
    authority = Authority(1, Validity(0, 1000 * DAY))
    current = IssuedCertificate(Validity(0, 90 * DAY), 1, frozenset({"a", "b"}))
    assert renewal_reason(current, DesiredCertificate(frozenset({"a"})), authority, DAY) == ""
    reason = renewal_reason(current, DesiredCertificate(frozenset({"a", "c", "d"})), authority, DAY)
    assert reason == "the previous one does not contain c, d"
    assert "two thirds" in renewal_reason(current, DesiredCertificate(), authority, 60 * DAY)
    assert renewal_reason(current, DesiredCertificate(), authority, 60 * DAY - 1) == ""
    assert "CN=a" in renewal_reason(
        IssuedCertificate(Validity(0, 90 * DAY), 1, subject="CN=a"), DesiredCertificate(subject="CN=b"), authority, 1
    )
