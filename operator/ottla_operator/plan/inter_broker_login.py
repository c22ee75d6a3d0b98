"""The login of brokers, the operator and `ottla up` on a Cluster's inter-broker listener. Pure.

Where every listener of the spec authenticates its clients, the inter-broker listener does too,
because an open one would be a way around all others. Brokers and the operator log in by
SCRAM-SHA-512 with passwords that the operator creates. Brokers have both in their settings, so that
they start without a credential in the metadata log.

Invariants: a broker that starts can reach those that run. No broker accepts clients without a login
unless one runs that has none yet. So running brokers get a login, and lose it, in two rolls: first
it is optional for all.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ottla_broker.security.principal import ANONYMOUS
from ottla_broker.security.scram import ScramMechanism
from ottla_broker.wire.client_security import SASL_PROTOCOLS, UNSECURED, ClientSecurity
from ottla_operator.plan.scram_login import generate_password
from ottla_operator.plan.settings import Settings
from ottla_operator.resources.cluster import Cluster

BROKER_USERS: Final = ("ottla-broker", "ottla-broker-2")
OPERATOR_USERS: Final = ("ottla-operator", "ottla-operator-2")
"""One name of each pair is in use. New passwords come with the other one
(`plan.password_rotation`).
"""
RESERVED_USERS: Final = (*BROKER_USERS, *OPERATOR_USERS)
MECHANISM: Final = ScramMechanism.SHA_512.title
PROTOCOL: Final = "SASL_PLAINTEXT"
OPTIONAL_SETTING: Final = "sasl.inter.broker.optional"
VERSION_SETTING: Final = "sasl.inter.broker.login.version"

# Keys of the Secret, and names of the files of `ottla up`, that brokers read.
LOGIN_MODULE: Final = "sasl.jaas.config"
LOGIN_VERSION: Final = "login.version"


class InterBrokerLogin(StrEnum):
    """OPTIONAL: brokers log in where others let them, and accept those that do not."""

    NONE = ""
    OPTIONAL = "Optional"
    REQUIRED = "Required"


@dataclass(frozen=True, slots=True)
class LoginPasswords:
    """`user_index`: of their users in BROKER_USERS and OPERATOR_USERS."""

    broker: str = field(repr=False)
    operator: str = field(repr=False)
    user_index: int = 0

    @classmethod
    def generate(cls, user_index: int = 0) -> "LoginPasswords":
        return cls(generate_password(), generate_password(), user_index)

    @property
    def broker_user(self) -> str:
        return BROKER_USERS[self.user_index]

    @property
    def operator_user(self) -> str:
        return OPERATOR_USERS[self.user_index]

    @property
    def digest(self) -> str:
        """Changes with the passwords, whose 384 random bits cannot be guessed from it."""
        return hashlib.sha256(f"{self.broker}\0{self.operator}".encode()).hexdigest()[:10]


def authenticates_everyone(cluster: Cluster) -> bool:
    """True if no listener of the spec is open to clients that do not authenticate."""
    return all(it.authentication in ("SCRAM", "TLS") for it in cluster.listeners)


def plan_login(cluster: Cluster, running: Collection[InterBrokerLogin]) -> InterBrokerLogin:
    """The login that brokers are started with next. `running`: logins of the brokers that exist."""
    if authenticates_everyone(cluster):
        return InterBrokerLogin.OPTIONAL if InterBrokerLogin.NONE in running else InterBrokerLogin.REQUIRED
    return InterBrokerLogin.OPTIONAL if InterBrokerLogin.REQUIRED in running else InterBrokerLogin.NONE


def observed_login(settings: Settings) -> InterBrokerLogin:
    """The login that a broker was started with."""
    protocols = dict(it.split(":", 1) for it in settings.get("listener.security.protocol.map", "").split(",") if it)
    if protocols.get(settings.get("inter.broker.listener.name", "")) not in SASL_PROTOCOLS:
        return InterBrokerLogin.NONE
    is_optional = settings.get(OPTIONAL_SETTING) == "true"
    return InterBrokerLogin.OPTIONAL if is_optional else InterBrokerLogin.REQUIRED


def listener_protocol(login: InterBrokerLogin) -> str:
    """Security protocol of the inter-broker listener, without TLS."""
    return PROTOCOL if login else "PLAINTEXT"


def login_settings(login: InterBrokerLogin, listener: str, folder: str) -> dict[str, str]:
    """Brokers' settings besides the listener's protocol. `listener`: the inter-broker listener.
    `folder`: with the files of the login module and its version, which brokers read again. Empty
    without a login.
    """
    if not login:
        return {}
    prefix = f"listener.name.{listener.lower()}."
    return {
        f"{prefix}sasl.enabled.mechanisms": MECHANISM,
        f"{prefix}{MECHANISM.lower()}.{LOGIN_MODULE}": f"${{directory:{folder}:{LOGIN_MODULE}}}",
        VERSION_SETTING: f"${{directory:{folder}:{LOGIN_VERSION}}}",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        **({OPTIONAL_SETTING: "true"} if login is InterBrokerLogin.OPTIONAL else {}),
    }


OPERATOR_RIGHTS: Final = (
    "Cluster:Alter",  # access rules, credentials, reassignments, elections, voters, brokers that are removed
    "Cluster:AlterConfigs",  # quotas, configs of brokers and of mirrors
    "Group:AlterConfigs",  # settings of Groups
    "Group:Describe",  # lag, and groups that read a topic that is to be deleted
    "Topic:Create",
    "Topic:Delete",
    "Topic:Alter",  # partitions
    "Topic:AlterConfigs",
    "Topic:Write",  # schemas of a topic's subjects, and the load script of `ottla up`
)
"""Operations that the operator may perform, on every resource of the type
(`restricted.super.users`), and those that they imply. It may read no record, commit no offset and
do nothing that brokers do.
"""


def super_users(login: InterBrokerLogin) -> list[str]:
    """The brokers' principals, as in Kafka: brokers store all data and fetch it from each other.
    Also User:ANONYMOUS, unless all brokers log in.
    """
    users = [f"User:{it}" for it in BROKER_USERS] if login else []
    return users if login is InterBrokerLogin.REQUIRED else [str(ANONYMOUS), *users]


def restricted_super_users(login: InterBrokerLogin) -> str:
    """The operator and its rights, as brokers' settings have them; empty while it has no login. It
    could give itself more, since it sets access rules, but not without a line of the audit log.
    """
    return ";".join(f"User:{it}={','.join(OPERATOR_RIGHTS)}" for it in OPERATOR_USERS) if login else ""


def operator_security(passwords: LoginPasswords | None, running: Collection[InterBrokerLogin]) -> ClientSecurity:
    """Login of the operator's connections. `passwords`: None while there are none. `running`:
    logins of the brokers that it may connect to.
    """
    if passwords is None or not any(running):
        return UNSECURED
    return ClientSecurity(PROTOCOL, is_login_optional=InterBrokerLogin.NONE in running).with_login(
        MECHANISM, passwords.operator_user, passwords.operator
    )
