"""A browser's request, and its responses: a page, a fragment of a page, or an error page."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from aiohttp import web

from ottla_broker.console.access import ConsoleUser
from ottla_broker.console.rendering import Renderer

R = TypeVar("R", bound=web.StreamResponse)

MAX_INT64: Final = 2**63 - 1
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageError(Exception):
    """An error that is shown as a page. `status`: the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A browser's request for a page, and the user who sends it. `http`: the HTTP request."""

    http: web.Request
    user: ConsoleUser
    renderer: Renderer

    def text(self, name: str) -> str:
        """A parameter of the query, without white space at its ends; empty without one."""
        return self.http.query.get(name, "").strip()

    def integer(self, name: str, default: int, *, at_least: int = 0, at_most: int = MAX_INT64) -> int:
        """A parameter of the query as an integer. Raises PageError if it is not an integer within
        the bounds."""
        text = self.text(name)
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if not at_least <= number <= at_most:
            raise PageError(400, f"{name}={text!r}: expected an integer from {at_least} to {at_most}")
        return number

    def flag(self, name: str) -> bool:
        """True if the parameter is 1, on or true."""
        return self.text(name) in ("1", "on", "true")

    @property
    def wants_fragment(self) -> bool:
        """True if htmx sends the request, to replace a part of the page."""
        return self.http.headers.get("HX-Request") == "true"

    def render(self, template: str, **values: object) -> web.Response:
        user = self.user
        text = self.renderer.render(
            template,
            user=user.principal,
            form_token=user.form_token,
            may_write=user.may_write,
            path=self.http.path,
            **values,
        )
        response = web.Response(text=text, content_type="text/html")
        response.enable_compression()
        return response


PageHandler = Callable[[PageRequest], Awaitable[web.StreamResponse]]


def with_security_headers(response: R) -> R:
    if not response.prepared:
        response.headers.update(SECURITY_HEADERS)
    return response
