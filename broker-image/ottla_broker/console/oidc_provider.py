"""Requests to an OpenID Connect provider: its metadata (OpenID Connect Discovery), its keys, and
the exchange of an authorization code for an id token.

Each request has a time limit, follows no redirect, and reads a bounded response.
"""

import ssl
from base64 import b64encode
from typing import Final
from urllib.parse import quote_plus

import aiohttp
import msgspec

from ottla_broker.console.login_methods import OidcSettings
from ottla_broker.runtime import Runtime
from ottla_broker.security.jwks import JsonWebKey, parse_key_set
from ottla_broker.wire.errors import describe_os_error

REQUEST_TIMEOUT_S: Final = 10.0
MAX_RESPONSE_BYTES: Final = 1 << 20
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
SECRET_IN_HEADER: Final = "client_secret_basic"
SECRET_IN_FORM: Final = "client_secret_post"
MAX_SHOWN: Final = 200
"""Characters of a provider's text in an error."""


class ProviderError(OSError):
    """The provider does not respond, or not as OpenID Connect requires. The message names the
    URL.
    """


class LoginRefused(Exception):
    """The provider refuses a login, for a reason of its own."""


class ProviderMetadata(msgspec.Struct, frozen=True):
    """The part of a provider's metadata that the console uses."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = (SECRET_IN_HEADER,)


class TokenResponse(msgspec.Struct, frozen=True):
    id_token: str = ""
    error: str = ""
    error_description: str = ""


def parse_metadata(text: bytes, issuer: str) -> ProviderMetadata:
    """Raises ValueError for metadata of another issuer, or with URLs that are less secure than the
    issuer's.
    """
    try:
        metadata = msgspec.json.decode(text, type=ProviderMetadata)
    except msgspec.MsgspecError as reason:
        raise ValueError(f"it is not the metadata of a provider: {reason}") from None
    if metadata.issuer != issuer:
        raise ValueError(f"it is of issuer {metadata.issuer[:MAX_SHOWN]!r}, not {issuer!r}")
    scheme = "https://" if issuer.startswith("https://") else ("https://", "http://")
    for url in (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri):
        if not url.startswith(scheme):
            raise ValueError(
                f"it has the endpoint {url[:MAX_SHOWN]!r}, which is not an HTTP URL as secure as the issuer's"
            )
    return metadata


def describe_refusal(error: str, description: str) -> str:
    """The text of `error` and `error_description` of a response (RFC 6749)."""
    return error[:MAX_SHOWN] + (f" ({description[:MAX_SHOWN]})" if description else "")


class OidcProvider:
    def __init__(self, settings: OidcSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._metadata: ProviderMetadata | None = None

    async def find_metadata(self) -> ProviderMetadata:
        """The provider's metadata as fetched last, or now for the first time. Raises
        ProviderError.
        """
        return self._metadata or await self._fetch_metadata()

    async def fetch_keys(self) -> list[JsonWebKey]:
        """The keys that sign id tokens, from the URL in newly fetched metadata. Raises
        ProviderError.
        """
        url = (await self._fetch_metadata()).jwks_uri
        try:
            return parse_key_set(await self._get(url))
        except ValueError as reason:
            raise ProviderError(f"{url}: {reason}") from None

    async def redeem_code(self, code: str, verifier: str, redirect_uri: str) -> str:
        """The id token for an authorization code. Raises ProviderError, LoginRefused."""
        metadata, headers = await self.find_metadata(), {"Accept": "application/json"}
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier
        }  # fmt: skip
        client_id, secret = self._settings.client_id, self._settings.client_secret
        methods = metadata.token_endpoint_auth_methods_supported
        if secret and (SECRET_IN_HEADER in methods or SECRET_IN_FORM not in methods):
            headers["Authorization"] = encode_basic(client_id, secret)
        else:
            form |= {"client_id": client_id} | ({"client_secret": secret} if secret else {})
        url = metadata.token_endpoint
        status, text = await self._request("POST", url, headers, form)
        try:
            response = msgspec.json.decode(text, type=TokenResponse)
        except msgspec.MsgspecError:
            raise ProviderError(f"{url} responds with HTTP status {status} and no JSON object of a token") from None
        if response.error:
            raise LoginRefused(describe_refusal(response.error, response.error_description))
        if status != 200 or not response.id_token:
            raise ProviderError(f"{url} responds with HTTP status {status} and without an id token")
        return response.id_token

    async def _fetch_metadata(self) -> ProviderMetadata:
        url = self._settings.issuer.rstrip("/") + DISCOVERY_PATH
        try:
            self._metadata = parse_metadata(await self._get(url), self._settings.issuer)
        except ValueError as reason:
            raise ProviderError(f"{url}: {reason}") from None
        return self._metadata

    async def _get(self, url: str) -> bytes:
        status, text = await self._request("GET", url, {"Accept": "application/json, */*;q=0.1"})
        if status != 200:
            raise ProviderError(f"{url} responds with HTTP status {status}")
        return text

    async def _request(
        self, method: str, url: str, headers: dict[str, str], form: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        authorities = self._settings.oauth.endpoint.trusted_certificates or None
        try:
            context = await self._runtime.run_in_thread(ssl.create_default_context, cafile=authorities)
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
                    connector=aiohttp.TCPConnector(ssl=context),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    trust_env=True,
                ) as session,
                session.request(method, url, headers=headers, data=form, allow_redirects=False) as response,
            ):
                return response.status, await read_bounded(response.content)
        except TimeoutError:
            raise ProviderError(f"{url} does not respond within {REQUEST_TIMEOUT_S:.0f} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as reason:
            raise ProviderError(f"{url}: {describe_failure(reason)}") from None


def describe_failure(reason: Exception) -> str:
    """The reason of a failed request. aiohttp's connection errors contain the system's error, which
    says more.
    """
    cause = reason
    if isinstance(reason, aiohttp.ClientConnectorCertificateError):
        cause = reason.certificate_error
    elif isinstance(reason, aiohttp.ClientConnectorError):
        cause = reason.os_error
    return describe_os_error(cause) if isinstance(cause, OSError) else str(cause)


async def read_bounded(content: aiohttp.StreamReader) -> bytes:
    """Reads a response of at most MAX_RESPONSE_BYTES. Raises ValueError, aiohttp.ClientError."""
    read = bytearray()
    async for chunk in content.iter_any():
        read += chunk
        if len(read) > MAX_RESPONSE_BYTES:
            raise ValueError(f"the response has more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(read)


def encode_basic(client_id: str, secret: str) -> str:
    """The value of the Authorization header for a client's id and secret, which are form-encoded
    first (RFC 6749, 2.3.1).
    """
    return "Basic " + b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()
