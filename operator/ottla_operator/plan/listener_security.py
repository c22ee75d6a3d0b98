"""The brokers' settings for authentication of clients at a Cluster's listeners and for
authorization, by Kafka's names. Pure.

Brokers reach each other on a listener of their own (`plan.inter_broker_login`). Where access rules
apply, every listener of the spec has to authenticate its clients (a rule of ClusterSpec), and so
does the brokers' own. On Kubernetes a NetworkPolicy keeps others from it; with `ottla up` it is on
the loopback interface.
"""

from typing import Final

from ottla_broker.config.security_types import STANDARD_AUTHORIZER
from ottla_broker.security.scram import MECHANISMS
from ottla_operator.plan import listener_certificates
from ottla_operator.plan.inter_broker_login import InterBrokerLogin, restricted_super_users, super_users
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_listener import Listener

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
RESTRICTED_SUPER_USERS: Final = "restricted.super.users"


def has_access_rules(cluster: Cluster) -> bool:
    """True if brokers decide by access control lists."""
    return cluster.spec.authorization is not None and cluster.spec.authorization.type == "ACL"


def security_protocol(listener: Listener) -> str:
    """Kafka's name of the listener's protocol."""
    transport = "SSL" if listener.tls else "PLAINTEXT"
    return f"SASL_{transport}" if listener.authentication == "SCRAM" else transport


def security_protocols(cluster: Cluster) -> dict[str, str]:
    """Security protocol by listener, in capitals as brokers name it."""
    return {it.name.upper(): security_protocol(it) for it in cluster.listeners}


def is_open(listener: Listener) -> bool:
    """True if clients need neither TLS nor a login."""
    return security_protocol(listener) == "PLAINTEXT"


def describe_missing_open_listener(cluster: Cluster) -> str:
    """The reason why a pipeline cannot connect."""
    return (
        f"Cluster {cluster.name} has no listener for pipelines: add one with authentication: SCRAM, one with "
        "authentication: TLS and tls.issuer: Internal, or one without TLS and authentication"
    )


def security_settings(cluster: Cluster, login: InterBrokerLogin) -> dict[str, str]:
    """Brokers' settings of authentication and authorization, besides protocols, certificates and
    the login of brokers.
    """
    return {
        **listener_certificates.client_auth_settings(cluster),
        **{
            f"listener.name.{it.name}.sasl.enabled.mechanisms": ",".join(MECHANISMS)
            for it in cluster.listeners
            if it.authentication == "SCRAM"
        },
        **_authorization_settings(cluster, login),
    }


def _authorization_settings(cluster: Cluster, login: InterBrokerLogin) -> dict[str, str]:
    authorization = cluster.spec.authorization
    if authorization is None or authorization.type != "ACL":
        return {}
    principals = dict.fromkeys([*super_users(login), *(authorization.super_users or ())])
    settings = {AUTHORIZER: STANDARD_AUTHORIZER, SUPER_USERS: ";".join(principals)}
    restricted = restricted_super_users(login)
    return {**settings, RESTRICTED_SUPER_USERS: restricted} if restricted else settings
