"""New passwords for a Cluster's brokers and its operator, without a restart and without a failed
login (`spec.rotatePasswordsAt`). Pure.

Brokers read the file of their login module again while they run, one earlier than another. So the
passwords change in steps. Brokers and operator have two names each, and new passwords come with the
other names:

1. Accept: brokers accept the new logins, and use the present ones.
2. Use: brokers and operator use the new logins, and the previous ones are accepted.
3. Remove: the previous logins are removed, which closes sessions that still have them.

Invariant: a login that is used anywhere is accepted everywhere, because a step begins only when
every broker reports the version of the step before it, and because neighbouring steps accept each
other's logins.
"""

import datetime
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ottla_operator.formatting import format_count
from ottla_operator.plan.inter_broker_login import (
    LOGIN_MODULE,
    LOGIN_VERSION,
    MECHANISM,
    PROTOCOL,
    LoginPasswords,
)
from ottla_operator.plan.scram_login import PASSWORD_BYTES, scram_login_module
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import format_time, parse_time

PASSWORDS: Final = (("broker.password", "operator.password"), ("broker-2.password", "operator-2.password"))
"""Keys of the Secret, and names of the files of `ottla up`, by LoginPasswords.user_index."""
ROTATION: Final = "rotation"
CLIENT_PROPERTIES: Final = "client.properties"
PREVIOUS_LOGIN_PERIOD: Final = datetime.timedelta(seconds=30)
"""Least time from the beginning of step 2 until previous logins are removed. Connections that the
operator opened before have ended by then."""


class RotationStep(StrEnum):
    """NONE: no rotation is in progress."""

    NONE = ""
    ACCEPT = "Accept"
    USE = "Use"
    REMOVE = "Remove"


TWO_LOGINS: Final = (RotationStep.ACCEPT, RotationStep.USE)
"""Steps at which brokers accept two logins."""


class UnusableLogin(Exception):
    """`key`: of the Secret, or name of the file, that cannot be used. `reason`: why not, and what
    is allowed.
    """

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


@dataclass(frozen=True, slots=True)
class LoginSecret:
    """Content of the Secret with the inter-broker login, or of its folder with `ottla up`.

    `next`: the passwords that follow during a rotation. `since`: start of the step, RFC 3339.
    `rotated_at`: the `spec.rotatePasswordsAt` that the newest passwords were generated for.
    """

    current: LoginPasswords
    next: LoginPasswords | None = None
    step: RotationStep = RotationStep.NONE
    since: str = ""
    rotated_at: str = ""

    @classmethod
    def generate(cls, rotated_at: str = "") -> "LoginSecret":
        return cls(LoginPasswords.generate(), rotated_at=rotated_at)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "LoginSecret":
        """`values`: by the keys of the Secret. Raises UnusableLogin."""
        try:
            state = json.loads(values.get(ROTATION) or "{}")
            is_second, step = bool(state.get("current", 0)), RotationStep(state.get("step", ""))
            since, rotated_at = str(state.get("since", "")), str(state.get("rotatedAt", ""))
            if step:
                parse_time(since)
        except (ValueError, AttributeError) as error:
            raise UnusableLogin(ROTATION, "it is not the state of a rotation, as the operator writes it") from error
        current = _parse_passwords(values, int(is_second))
        following = _parse_passwords(values, 1 - is_second) if step in TWO_LOGINS else None
        return cls(current, following, step, since, rotated_at)

    @property
    def in_use(self) -> LoginPasswords:
        """The passwords that every broker accepts and the operator logs in with."""
        return self.next if self.next is not None and self.step is RotationStep.USE else self.current

    @property
    def digests(self) -> frozenset[str]:
        """Digests of all passwords that brokers accept."""
        return frozenset(it.digest for it in (self.current, self.next) if it is not None)

    @property
    def login_module(self) -> str:
        accepted = [it for it in (self.current, self.next) if it is not None]
        own = self.in_use
        others = {it.broker_user: it.broker for it in accepted if it is not own}
        operators = {it.operator_user: it.operator for it in accepted}
        return scram_login_module(own.broker_user, own.broker, {**others, **operators})

    @property
    def version(self) -> str:
        """Digest of the login module, whose passwords are too long to be guessed from it."""
        return hashlib.sha256(self.login_module.encode()).hexdigest()[:12]

    def to_values(self) -> dict[str, str]:
        """By the keys of the Secret, in the order in which files are written: a broker never reads
        a version whose login module it cannot read yet, and a rotation never names passwords that
        do not exist."""
        own = self.in_use
        login = scram_login_module(own.operator_user, own.operator)
        state = {
            "current": self.current.user_index,
            "step": self.step,
            "since": self.since,
            "rotatedAt": self.rotated_at,
        }
        return {
            **{
                key: value
                for it in (self.current, self.next)
                if it is not None
                for key, value in zip(PASSWORDS[it.user_index], (it.broker, it.operator), strict=True)
            },
            ROTATION: json.dumps(state),
            LOGIN_MODULE: self.login_module,
            LOGIN_VERSION: self.version,
            CLIENT_PROPERTIES: f"security.protocol={PROTOCOL}\nsasl.mechanism={MECHANISM}\n{LOGIN_MODULE}={login}\n",
        }


def due_rotation(cluster: Cluster, now: datetime.datetime) -> str:
    """The `rotatePasswordsAt` of a Cluster if that time has come, else empty."""
    rotate_at = cluster.spec.rotate_passwords_at
    return rotate_at if rotate_at and parse_time(rotate_at) <= now else ""


def is_rotation_due(secret: LoginSecret, due: str) -> bool:
    """True if a rotation has to begin or is in progress. `due`: see `due_rotation`."""
    return bool(secret.step) or bool(due and due != secret.rotated_at)


def find_outdated_brokers(secret: LoginSecret, versions: Mapping[int, str], brokers: Collection[int]) -> list[int]:
    """Brokers that have not read the present login module yet. `versions`: of the login modules
    that brokers report."""
    return sorted(it for it in brokers if versions.get(it) != secret.version)


def next_rotation_step(
    secret: LoginSecret, due: str, versions: Mapping[int, str], brokers: Collection[int], now: datetime.datetime
) -> LoginSecret | None:
    """The Secret of the next step; None if there is none yet. `brokers`: all that exist."""
    if not is_rotation_due(secret, due) or find_outdated_brokers(secret, versions, brokers):
        return None
    since = format_time(now.timestamp())
    match secret.step:
        case RotationStep.NONE:
            generated = LoginPasswords.generate(1 - secret.current.user_index)
            return LoginSecret(secret.current, generated, RotationStep.ACCEPT, since, due)
        case RotationStep.ACCEPT:
            return replace(secret, step=RotationStep.USE, since=since)
        case RotationStep.USE:
            assert secret.next is not None
            if now - parse_time(secret.since) < PREVIOUS_LOGIN_PERIOD:
                return None
            return LoginSecret(secret.next, None, RotationStep.REMOVE, since, secret.rotated_at)
        case RotationStep.REMOVE:
            return LoginSecret(secret.current, rotated_at=secret.rotated_at)


def describe_step(secret: LoginSecret) -> str:
    """What brokers do from this step of a rotation on, for events."""
    match secret.step:
        case RotationStep.ACCEPT:
            return "step 1 of 3: brokers accept the new passwords too"
        case RotationStep.USE:
            return "step 2 of 3: brokers and operator log in with the new passwords"
        case RotationStep.REMOVE:
            return "step 3 of 3: the previous passwords are removed"
        case RotationStep.NONE:
            return "rotation complete: brokers accept only the new passwords"


def _parse_passwords(values: Mapping[str, str], user_index: int) -> LoginPasswords:
    """Raises UnusableLogin if a password is missing or too short."""
    found = [values.get(key, "").strip() for key in PASSWORDS[user_index]]
    for key, password in zip(PASSWORDS[user_index], found, strict=True):
        if len(password) < PASSWORD_BYTES:
            problem = f"it has {format_count(len(password), 'character')}" if key in values else "it is missing"
            raise UnusableLogin(key, f"{problem}; a password has at least {PASSWORD_BYTES} characters")
    broker, operator = found
    return LoginPasswords(broker, operator, user_index)
