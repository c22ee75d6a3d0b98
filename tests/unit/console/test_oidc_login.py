"""Logins by OpenID Connect: attempts, and a provider that does not respond as it should."""

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ottla_broker.config.listener_security import OauthSettings
from ottla_broker.console import oidc_provider
from ottla_broker.console.login_methods import OidcSettings
from ottla_broker.console.oidc_login import ATTEMPT_LIFETIME_S, LoginAttempts
from ottla_broker.console.oidc_provider import LoginRefused, OidcProvider, ProviderError, parse_metadata
from ottla_broker.security.jwks import JwksEndpoint
from ottla_broker.security.oauth_token import TokenRules
from tests.kube.certificates import create_certificate_authority
from tests.unit.async_tests import async_test


def test_attempt_is_found_by_its_cookie_and_state_for_a_while() -> None:
    now = SimpleNamespace(s=1000.0)
    attempts = LoginAttempts(lambda: now.s)
    first, second = attempts.start(), attempts.start()
    assert attempts.find(first.cookie, first.state) == first
    assert attempts.find(first.cookie, second.state) is None
    assert attempts.find("", "") is None
    prolonged = f"{10**12}{first.cookie[first.cookie.index('.') :]}"
    assert attempts.find(prolonged, first.state) is None
    assert LoginAttempts(lambda: now.s).find(first.cookie, first.state) is None
    now.s += ATTEMPT_LIFETIME_S
    assert attempts.find(first.cookie, first.state) is None


def test_values_of_an_attempt_differ_and_have_43_characters() -> None:
    """43 characters are the fewest that RFC 7636 allows for the verifier."""
    attempt = LoginAttempts(lambda: 0.0).start()
    values = {attempt.state, attempt.nonce, attempt.verifier, attempt.challenge}
    assert len(values) == 4 and {len(it) for it in values} == {43}


METADATA = {
    "issuer": "https://issuer",
    "authorization_endpoint": "https://issuer/auth",
    "token_endpoint": "https://issuer/token",
    "jwks_uri": "https://keys.example/jwks",
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "https://other"}, "is of issuer 'https://other'"),
        ({"token_endpoint": "http://issuer/token"}, "not an HTTP URL as secure as the issuer's"),
        ({"jwks_uri": "file:///etc/passwd"}, "not an HTTP URL as secure as the issuer's"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not an HTTP URL as secure as the issuer's"),
        ({"token_endpoint": 1}, "not the metadata of a provider"),
    ],
)
def test_metadata_that_cannot_be_used_are_refused(changes: dict[str, Any], reason: str) -> None:
    assert parse_metadata(json.dumps(METADATA).encode(), "https://issuer").jwks_uri == METADATA["jwks_uri"]
    with pytest.raises(ValueError, match=reason):
        parse_metadata(json.dumps(METADATA | changes).encode(), "https://issuer")


Respond = Callable[[web.Request], Any]


async def redeem(respond: Respond, *, secret: str = "s c", methods: tuple[str, ...] = ()) -> str:
    """Redeems a code at a provider whose token endpoint calls `respond`; returns the id token.
    `methods`: how the provider lets clients authenticate; empty: it does not say.
    """

    async def metadata(request: web.Request) -> web.Response:
        issuer = f"http://{request.host}"
        fields: dict[str, Any] = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/auth",
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/jwks",
        }
        return web.json_response(fields | ({"token_endpoint_auth_methods_supported": methods} if methods else {}))

    async def token(request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = await respond(request)
        return response

    app = web.Application()
    app.add_routes([web.get("/.well-known/openid-configuration", metadata), web.post("/token", token)])
    async with TestServer(app, host="127.0.0.1") as server:
        oauth = OauthSettings(JwksEndpoint("http://keys"), TokenRules(), 1, 1, 1)
        issuer = str(server.make_url("")).rstrip("/")
        settings = OidcSettings(issuer, "a:client", secret, "openid", "", oauth)
        runtime: Any = SimpleNamespace(run_in_thread=asyncio.to_thread)
        return await OidcProvider(settings, runtime).redeem_code("code", "verifier", "http://here")


@pytest.mark.parametrize(
    ("secret", "methods", "header", "fields"),
    [
        ("s c", (), "Basic YSUzQWNsaWVudDpzK2M=", {}),
        ("s c", ("client_secret_post",), None, {"client_id": "a:client", "client_secret": "s c"}),
        ("", (), None, {"client_id": "a:client"}),
    ],
)
@async_test
async def test_client_authenticates_as_the_provider_wants(
    secret: str, methods: tuple[str, ...], header: str | None, fields: dict[str, str]
) -> None:
    async def respond(request: web.Request) -> web.Response:
        form = dict(await request.post())
        assert request.headers.get("Authorization") == header
        assert {name: form[name] for name in form if name.startswith("client")} == fields
        assert (form["code"], form["code_verifier"], form["redirect_uri"]) == ("code", "verifier", "http://here")
        return web.json_response({"id_token": "a.b.c", "access_token": "unused"})

    assert await redeem(respond, secret=secret, methods=methods) == "a.b.c"


async def hang(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


def always(text: str, status: int = 200, **headers: str) -> Respond:
    async def respond(request: web.Request) -> web.Response:
        return web.Response(text=text, status=status, headers=headers)

    return respond


@pytest.mark.parametrize(
    ("respond", "error", "message"),
    [
        (hang, ProviderError, "/token does not respond within 0 s"),
        (always("x" * (oidc_provider.MAX_RESPONSE_BYTES + 1)), ProviderError, "more than 1048576 bytes"),
        (always("", 302, Location="http://attacker.example"), ProviderError, "HTTP status 302"),
        (always("<html>", 503), ProviderError, "HTTP status 503 and no JSON object"),
        (always('{"access_token":"a"}'), ProviderError, "without an id token"),
        (always('{"id_token":"a.b.c"}', 500), ProviderError, "HTTP status 500"),
        (always('{"error":"invalid_client","error_description":"no"}', 401), LoginRefused, r"invalid_client \(no\)"),
    ],
)
@async_test
async def test_other_responses_are_errors(
    respond: Respond, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if respond is hang:
        monkeypatch.setattr(oidc_provider, "REQUEST_TIMEOUT_S", 0.05)
    with pytest.raises(error, match=message):
        await redeem(respond)


@pytest.mark.parametrize(
    ("trusts_authority", "has_tls", "reason"),
    [
        (True, True, "not the metadata of a provider"),
        (False, True, "unable to get local issuer certificate|self-signed certificate"),
        (True, False, "wrong_version_number"),
    ],
)
@async_test
async def test_provider_is_trusted_if_the_truststore_has_its_authority(
    trusts_authority: bool, has_tls: bool, reason: str, tmp_path: Path
) -> None:
    authority = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.server_certificate, authority.server_key)
    app = web.Application()
    app.add_routes([web.get("/.well-known/openid-configuration", always("{}"))])
    server = TestServer(app, host="127.0.0.1")
    await server.start_server(ssl=tls if has_tls else None)
    try:
        endpoint = JwksEndpoint("http://keys", str(authority.certificate) if trusts_authority else "")
        oauth = OauthSettings(endpoint, TokenRules(), 1, 1, 1)
        settings = OidcSettings(f"https://127.0.0.1:{server.port}", "c", "", "openid", "", oauth)
        runtime: Any = SimpleNamespace(run_in_thread=asyncio.to_thread)
        with pytest.raises(ProviderError, match=reason):
            await OidcProvider(settings, runtime).find_metadata()
    finally:
        await server.close()
