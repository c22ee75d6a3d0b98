"""Certificates of a Cluster, as its spec asks for them and its status shows them."""

from typing import Annotated, Final, Literal

from ottla_operator.resources.common import Duration, ObjectRef, Timestamp, parse_duration_ms
from ottla_operator.resources.model import Json, Model, Rule, doc, exactly_one, listed

DEFAULT_VALIDITY: Final = {"certificateValidity": "90d", "authorityValidity": "1825d"}
MIN_VALIDITY_S: Final = 600.0
"""A renewed certificate needs a minute or two to reach the brokers' pods."""


def _validity_s(value: dict[str, Json], field_name: str) -> float:
    return parse_duration_ms(value.get(field_name, DEFAULT_VALIDITY[field_name])) / 1000


class Tls(Model, frozen=True):
    """Certificates of brokers, for listeners with tls: true and between brokers: from a Secret, or
    of the Cluster's own authority.
    """

    secret_ref: Annotated[
        ObjectRef | None,
        doc(
            "Secret of type kubernetes.io/tls with tls.crt, tls.key and, for client certificates or interBroker, "
            "ca.crt. "
            "Brokers read a renewed certificate while they run."
        ),
    ] = None
    issuer: Annotated[
        Literal["Internal"] | None,
        doc(
            "Internal: a certificate authority that the operator keeps for this Cluster alone issues the certificates "
            "of brokers and of Users with authentication TLS, and renews them without a restart."
        ),
    ] = None
    inter_broker: Annotated[
        bool | None,
        doc(
            "Whether brokers use TLS among themselves, too. A change restarts each broker twice, one after the other. "
            "Without effect with `ottla up`, whose brokers are on one machine. Defaults to false."
        ),
    ] = None
    certificate_validity: Annotated[
        Duration | None,
        doc("Lifetime of an issued certificate, which is renewed after two thirds of it. Defaults to 90d."),
    ] = None
    authority_validity: Annotated[
        Duration | None,
        doc(
            "Lifetime of the authority. After two thirds of it a successor is trusted too, and after five sixths that "
            "one issues the certificates. Defaults to 1825d (five years)."
        ),
    ] = None

    rules = (
        exactly_one("secretRef", "issuer", message="tls has either secretRef or issuer: Internal"),
        Rule(
            "has(self.issuer) || (!has(self.certificateValidity) && !has(self.authorityValidity))",
            "certificateValidity and authorityValidity are only for issuer: Internal",
            lambda value: "issuer" in value or not ("certificateValidity" in value or "authorityValidity" in value),
        ),
        Rule(
            None,
            "certificateValidity is at least 10 minutes",
            lambda value: _validity_s(value, "certificateValidity") >= MIN_VALIDITY_S,
            "certificateValidity",
        ),
        Rule(
            None,
            "authorityValidity is at least as long as certificateValidity, which is 90d if it is not set",
            lambda value: _validity_s(value, "authorityValidity") >= _validity_s(value, "certificateValidity"),
            "authorityValidity",
        ),
    )

    @property
    def certificate_validity_s(self) -> float:
        return parse_duration_ms(self.certificate_validity or DEFAULT_VALIDITY["certificateValidity"]) / 1000

    @property
    def authority_validity_s(self) -> float:
        return parse_duration_ms(self.authority_validity or DEFAULT_VALIDITY["authorityValidity"]) / 1000


class AuthorityStatus(Model, frozen=True):
    """A certificate authority that clients have to trust now."""

    number: Annotated[int, doc("Number of the authority; a successor has the next one.")]
    not_after: Annotated[Timestamp, doc("Time at which the authority expires and is no longer trusted.")]


class CertificateStatus(Model, frozen=True):
    """The certificate that brokers present to clients."""

    not_after: Annotated[Timestamp, doc("Time at which the certificate expires.")]
    renewal_time: Annotated[
        Timestamp | None, doc("Time from which the operator renews it. Not set with secretRef.")
    ] = None
    authorities: Annotated[
        list[AuthorityStatus] | None,
        doc("Authorities of the Cluster, the oldest first. Not set with secretRef.", listed("map", "number")),
    ] = None
