"""The console of a Cluster, and logins of its users by an OpenID Connect provider."""

from typing import Annotated, Final

from msgspec import Meta

from ottla_operator.resources.common import ObjectRef, SecretKeyRef
from ottla_operator.resources.model import Model, Rule, doc

WEB_URL: Final = r"^https?://[^\s?#]+$"
Url = Annotated[str, Meta(max_length=1024, pattern=WEB_URL)]
"""A URL without query and fragment."""


class OidcLogin(Model, frozen=True):
    """Logins of the console's users by an OpenID Connect provider, where the console is registered
    as a client.
    """

    issuer: Annotated[
        Url,
        doc(
            "URL of the provider, exactly as its tokens name it. Its endpoints are read from "
            "/.well-known/openid-configuration below it."
        ),
    ]
    client_id: Annotated[
        str, Meta(min_length=1, max_length=256, description="Client id of the console at the provider.")
    ]
    client_secret_from: Annotated[
        SecretKeyRef | None, doc("Secret key that holds the client's secret. Defaults to none: a public client.")
    ] = None
    ca_secret_ref: Annotated[
        ObjectRef | None,
        doc(
            "Secret with ca.crt, the authorities that sign the provider's certificate. Defaults to the authorities of "
            "the brokers' system."
        ),
    ] = None
    scope: Annotated[
        Annotated[str, Meta(max_length=1024)] | None,
        doc("Scopes to request, separated by spaces, openid among them. Defaults to openid."),
    ] = None
    user_claim: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        doc("Claim of id tokens that is the user's name in access rules, such as email. Defaults to sub."),
    ] = None
    redirect_uri: Annotated[
        Url | None,
        doc(
            "URL of the console's /login/oidc as browsers reach it. Set it where a proxy terminates TLS. Defaults to "
            "/login/oidc at the address with which the browser opened the console."
        ),
    ] = None

    rules = (
        Rule(
            "!has(self.scope) || self.scope.matches('(^| )openid( |$)')",
            "scope has to contain openid: without it there is no id token",
            lambda value: "openid" in str(value.get("scope", "openid")).split(" "),
            "scope",
        ),
        Rule(
            "!has(self.caSecretRef) || self.issuer.startsWith('https://')",
            "caSecretRef needs an issuer with https://",
            lambda value: "caSecretRef" not in value or value["issuer"].startswith("https://"),
            "caSecretRef",
        ),
    )


class Console(Model, frozen=True):
    """Pages in a browser, which every broker serves on its HTTP port."""

    enabled: Annotated[bool | None, doc("Whether brokers serve it. Defaults to true.")] = None
    oidc: Annotated[
        OidcLogin | None,
        doc(
            "Logins by an OpenID Connect provider. Needs a listener with authentication SCRAM or TLS. Defaults to "
            "passwords, where a listener has SCRAM."
        ),
    ] = None

    rules = (
        Rule(
            "!has(self.oidc) || !has(self.enabled) || self.enabled",
            "oidc needs the console: remove enabled: false",
            lambda value: "oidc" not in value or value.get("enabled", True) is True,
            "oidc",
        ),
    )
