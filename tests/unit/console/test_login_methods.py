"""Which logins the console has, by the settings of listeners."""

import pytest

from ottla_broker.config import Config, SettingError
from ottla_broker.console.login_methods import LoginMethods, find_login_methods

BETWEEN_BROKERS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="b";'
SCRAM = {
    "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
OAUTH = {
    **SCRAM,
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/jwks",
    "sasl.oauthbearer.sub.claim.name": "email",
}
OIDC = {"console.oidc.issuer": "https://issuer", "console.oidc.client.id": "console"}
CERTIFICATES = {
    "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SSL",
    "inter.broker.listener.name": "IN",
    "ssl.client.auth": "required",
}


def config(settings: dict[str, str]) -> Config:
    return Config.of({"log.dirs": "/data", **settings})


def test_open_cluster_has_no_login() -> None:
    assert find_login_methods(config({})) is None


def test_passwords_are_those_of_a_listener_for_clients_if_there_is_one() -> None:
    both = {
        **SCRAM,
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.in.scram-sha-512.sasl.jaas.config": BETWEEN_BROKERS,
    }
    for settings in (SCRAM, both):
        assert find_login_methods(config(settings)) == LoginMethods("OUT", None, None)


def test_oidc_logs_in_users_of_a_listener_with_oauthbearer() -> None:
    methods = find_login_methods(config(OAUTH | OIDC))
    assert methods is not None and methods.oidc is not None
    assert (methods.password_listener, methods.certificate_listener) == (None, None)
    assert (methods.oidc.oauth.rules.subject_claim, methods.oidc.scope) == ("email", "openid")


@pytest.mark.parametrize("logins", [SCRAM, CERTIFICATES])
def test_oidc_logs_in_users_where_no_listener_has_oauthbearer(logins: dict[str, str]) -> None:
    authorities = {"console.oidc.truststore.location": "/ca.crt", "sasl.oauthbearer.sub.claim.name": "email"}
    methods = find_login_methods(config(logins | OIDC | authorities))
    assert methods is not None and methods.oidc is not None
    oauth = methods.oidc.oauth
    assert (oauth.rules.subject_claim, oauth.endpoint.trusted_certificates) == ("email", "/ca.crt")


def test_truststore_of_the_provider_is_its_own_or_that_of_the_listener() -> None:
    module = (
        'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ssl.truststore.location="/l";'
    )
    of_listener = OAUTH | OIDC | {"listener.name.out.oauthbearer.sasl.jaas.config": module}
    for settings, expected in ((of_listener, "/l"), (of_listener | {"console.oidc.truststore.location": "/o"}, "/o")):
        methods = find_login_methods(config(settings))
        assert methods is not None and methods.oidc is not None
        assert methods.oidc.oauth.endpoint.trusted_certificates == expected


@pytest.mark.parametrize(
    ("settings", "listener"),
    [
        ({"http.security.listener": "OUT"}, "OUT"),
        ({"http.security.listener": "OUT", "ssl.client.auth": "requested"}, "OUT"),
        ({"http.security.listener": "OUT", "ssl.client.auth": "none"}, None),
        ({"http.security.listener": "IN"}, None),
        ({}, None),
    ],
)
def test_certificates_log_in_where_the_listener_asks_for_them(settings: dict[str, str], listener: str | None) -> None:
    with_passwords = {"listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2,WORDS://127.0.0.1:3"}
    protocols = {"listener.security.protocol.map": "IN:PLAINTEXT,OUT:SSL,WORDS:SASL_SSL"}
    methods = find_login_methods(config(SCRAM | CERTIFICATES | with_passwords | protocols | settings))
    assert methods == LoginMethods("WORDS", listener, None)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"authorizer.class.name": "StandardAuthorizer"}, r"clients .*authorizer.class.name="),
        (OAUTH, "set console.oidc.issuer"),
        (CERTIFICATES, "listener OUT requires certificates"),
        (OAUTH | {"console.oidc.issuer": "https://issuer"}, "needs console.oidc.client.id"),
        (SCRAM | {"console.oidc.client.id": "console"}, "console.oidc.issuer is not"),
        ({"console.oidc.scope": "email"}, "without openid"),
        ({"console.oidc.issuer": "issuer"}, "allowed: a URL with https:// or http://"),
    ],
)
def test_settings_without_a_login_are_refused_with_the_reason(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        find_login_methods(config(settings))
