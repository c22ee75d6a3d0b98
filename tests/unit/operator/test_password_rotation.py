"""The steps of a rotation of the brokers' passwords: no login fails at any of them."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.jaas import LoginModule, parse_jaas_config
from ottla_operator.plan.inter_broker_login import RESERVED_USERS
from ottla_operator.plan.password_rotation import (
    PREVIOUS_LOGIN_PERIOD,
    LoginSecret,
    UnusableLogin,
    due_rotation,
    find_outdated_brokers,
    next_rotation_step,
)
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples

NOW = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)
DUE = "2026-01-31T11:00:00Z"


def module_of(secret: LoginSecret) -> LoginModule:
    return parse_jaas_config(secret.login_module)


def accepts(broker: LoginSecret, user: str, password: str) -> bool:
    """True if a broker with this login module accepts the login."""
    module = module_of(broker)
    return {**module.users, module.username: module.password}.get(user) == password


def next_step(secret: LoginSecret, due: str = DUE, at: datetime.datetime = NOW) -> LoginSecret | None:
    """The step after this one, which all three brokers have read; None while there is none."""
    return next_rotation_step(secret, due, dict.fromkeys([1, 2, 3], secret.version), [1, 2, 3], at)


def rotate(secret: LoginSecret, due: str = DUE) -> list[LoginSecret]:
    """The Secret at each step, until no step follows."""
    steps, at = [secret], NOW
    while (following := next_step(steps[-1], due, at)) is not None:
        steps.append(following)
        at += PREVIOUS_LOGIN_PERIOD
    return steps


def test_a_rotation_has_three_steps_and_ends_with_the_other_names() -> None:
    before, accept, use, remove, after = rotate(LoginSecret.generate())
    assert [it.step for it in (before, accept, use, remove, after)] == ["", "Accept", "Use", "Remove", ""]
    assert (module_of(before).username, module_of(after).username) == ("ottla-broker", "ottla-broker-2")
    assert module_of(after).users == {"ottla-operator-2": after.current.operator}
    assert not {before.current.broker, before.current.operator} & {after.current.broker, after.current.operator}
    assert len({it.version for it in (before, accept, use, remove, after)}) == 4
    assert remove.version == after.version, "a rotation ends when every broker has removed the previous logins"
    back = rotate(after, "2026-02-28T11:00:00Z")[-1]
    assert module_of(back).username == "ottla-broker" and back.current.broker != before.current.broker


@given(operator_is_late=st.booleans(), data=st.data())
def test_a_login_that_is_used_anywhere_is_accepted_everywhere(operator_is_late: bool, data: st.DataObject) -> None:
    """Brokers read the file at different times."""
    written = LoginSecret.generate()
    brokers, operator, at = [written] * 3, written, NOW
    for _ in range(20):
        for id_, broker in enumerate(brokers, 1):
            module = module_of(broker)
            assert all(accepts(other, module.username, module.password) for other in brokers)
            assert accepts(broker, operator.in_use.operator_user, operator.in_use.operator), id_
        versions = {id_: it.version for id_, it in enumerate(brokers, 1)}
        following = next_rotation_step(written, DUE, versions, [1, 2, 3], at)
        operator = written if operator_is_late else following or written  # late: it connected just before
        written, at = following or written, at + PREVIOUS_LOGIN_PERIOD / 2
        at_once = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
        brokers = [written if it else old for it, old in zip(at_once, brokers, strict=True)]
    assert written.rotated_at in ("", DUE)


def test_a_step_waits_for_every_broker_that_exists() -> None:
    secret = LoginSecret.generate()
    versions = {1: secret.version, 2: "", 3: "other"}
    assert find_outdated_brokers(secret, versions, [1, 2, 3, 4]) == [2, 3, 4]
    assert next_rotation_step(secret, DUE, versions, [1, 2, 3], NOW) is None


def test_previous_logins_are_accepted_for_a_time_after_every_broker_has_the_new_one() -> None:
    _, _, use, *_ = rotate(LoginSecret.generate())
    since = datetime.datetime.fromisoformat(use.since)
    assert next_step(use, at=since + PREVIOUS_LOGIN_PERIOD / 2) is None
    assert next_step(use, at=since + PREVIOUS_LOGIN_PERIOD) is not None


def test_a_rotation_that_has_begun_ends_also_if_it_is_no_longer_requested() -> None:
    _, accept, *_ = rotate(LoginSecret.generate())
    assert [it.step for it in rotate(accept, due="")] == ["Accept", "Use", "Remove", ""]


def test_each_value_of_rotate_passwords_at_rotates_once() -> None:
    after = rotate(LoginSecret.generate())[-1]
    assert next_step(after) is None
    assert next_step(LoginSecret.generate(rotated_at=DUE)) is None, "a new Cluster has new passwords already"
    assert next_step(after, due="2026-01-31T11:30:00Z") is not None


@pytest.mark.parametrize(("at", "expected"), [(None, ""), (DUE, DUE), ("2026-01-31T12:00:01Z", "")])
def test_a_rotation_is_due_when_its_time_has_come(at: str | None, expected: str) -> None:
    spec = {} if at is None else {"rotatePasswordsAt": at}
    assert due_rotation(Cluster.parse(samples.cluster(**spec)), NOW) == expected


def test_the_secret_holds_the_state_of_the_rotation() -> None:
    for secret in rotate(LoginSecret.generate()):
        assert LoginSecret.parse(secret.to_values()) == secret
    _, accept, use, _, after = rotate(LoginSecret.generate())
    for broken in ({"broker-2.password": ""}, {"rotation": '{"step": "Use"}'}, {"rotation": "no JSON"}):
        with pytest.raises(UnusableLogin):
            LoginSecret.parse({**use.to_values(), **broken})
    assert accept.digests == use.digests and after.digests < use.digests
    # Files are written one after the other, and what was written before a crash is complete.
    keys = [*use.to_values()]
    assert keys.index("broker-2.password") < keys.index("rotation") < keys.index("sasl.jaas.config")
    assert keys.index("sasl.jaas.config") < keys.index("login.version")


def test_no_user_resource_can_have_a_name_of_the_logins() -> None:
    for secret in rotate(LoginSecret.generate()):
        module = module_of(secret)
        assert {module.username, *module.users} <= {*RESERVED_USERS}


def test_passwords_are_in_no_text_that_is_logged() -> None:
    for secret in rotate(LoginSecret.generate()):
        for it in (secret.current, secret.next):
            assert it is None or not [p for p in (it.broker, it.operator) if p in repr(secret) + secret.version]
