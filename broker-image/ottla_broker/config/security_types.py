"""Types of settings of security: the authorizer, principals, SASL mechanisms and login modules, and
how OAuth tokens are requested and verified.
"""

from ottla_broker.config.value_types import ConfigType, ValueType, parsed, split_list
from ottla_broker.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas_config
from ottla_broker.security.principal_mapping import PrincipalMapper
from ottla_broker.security.restricted_super_users import (
    ALLOWED,
    RestrictedSuperUsers,
    format_restricted_super_users,
    parse_restricted_super_users,
)
from ottla_broker.wire.client_security import SERVER_MECHANISMS

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_principals(text: str) -> tuple[str, ...]:
    """`TYPE:NAME` entries separated by semicolons, because names of certificates contain commas."""
    entries = tuple(entry.strip() for entry in text.split(";") if entry.strip())
    for entry in entries:
        kind, colon, name = entry.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{entry!r} has no type and name with a colon between them")
    return entries


def parse_authorizer_name(text: str) -> str:
    """Kafka's StandardAuthorizer with or without its package, or nothing."""
    if text.strip() not in ("", STANDARD_AUTHORIZER.rpartition(".")[2], STANDARD_AUTHORIZER):
        raise ValueError
    return text.strip()


def authorizer_name() -> ValueType[str]:
    return parsed(parse_authorizer_name, f"{STANDARD_AUTHORIZER} or nothing")


def login_module() -> ValueType[LoginModule | None]:
    return parsed(
        parse_jaas_config,
        f'{PLAIN_MODULE} required user_NAME="PASSWORD" …; {SCRAM_MODULE} required; or {OAUTHBEARER_MODULE} required;',
        code=ConfigType.PASSWORD,
    )


def parse_jwks_url(text: str) -> str:
    scheme, separator, rest = text.strip().partition("://")
    if scheme.lower() not in ("https", "http", "file") or not separator or not rest:
        raise ValueError
    return text.strip()


def jwks_url() -> ValueType[str]:
    return parsed(parse_jwks_url, "a URL with https://, http:// or file://")


def parse_oidc_scope(text: str) -> str:
    if "openid" not in text.split():
        raise ValueError("without openid there is no id token")
    return " ".join(text.split())


def oidc_scope() -> ValueType[str]:
    return parsed(parse_oidc_scope, "scopes separated by spaces, openid among them")


def parse_mechanisms(text: str) -> tuple[str, ...]:
    mechanisms = split_list(text)
    for mechanism in mechanisms:
        if mechanism == "GSSAPI":
            raise ValueError("GSSAPI (Kerberos) is not implemented")
        if mechanism not in SERVER_MECHANISMS:
            raise ValueError(f"{mechanism!r} is unknown")
    return mechanisms


def mechanisms() -> ValueType[tuple[str, ...]]:
    allowed = f"a comma-separated list of {', '.join(SERVER_MECHANISMS[:-1])} and {SERVER_MECHANISMS[-1]}"
    return parsed(parse_mechanisms, allowed, code=ConfigType.LIST)


def principal_mapping_rules() -> ValueType[PrincipalMapper]:
    return parsed(PrincipalMapper.parse, "DEFAULT, and RULE:PATTERN/REPLACEMENT/[LU], separated by commas", str)


def principals() -> ValueType[tuple[str, ...]]:
    return parsed(
        parse_principals, "TYPE:NAME entries separated by semicolons, such as User:admin", _join_with_semicolons
    )


def restricted_super_users() -> ValueType[RestrictedSuperUsers]:
    return parsed(parse_restricted_super_users, ALLOWED, format_restricted_super_users)


def _join_with_semicolons(value: object) -> str:
    assert isinstance(value, tuple)
    return ";".join(value)
