"""Requests that the console sends as its user, and the forms of the pages that write.

A page that writes is served where `console.write` allows it. Its form needs the token of the user's
session. A request for the controller is dispatched like any client's request to this broker:
the access rules, quotas and audit events are those of the user. A request for another broker is
sent with the login of brokers, after the user's rights are checked, and is recorded in the audit
log by the console.
"""

from asyncio import Future
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from ottla_broker.config import CONSOLE_WRITE, HTTP_LISTENER
from ottla_broker.console.access import CLIENT_ID, ConsoleUser
from ottla_broker.console.login import read_page_form
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.requests.context import AUTHORIZATION_ERRORS, DONE, ConnectionState
from ottla_broker.security.audit import AuditedResource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, write_request
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.request_header import read_request_header

SIZE_BYTES: Final = 4
MAX_RESPONSE_BYTES: Final = 1 << 20


def check_may_write(page: PageRequest) -> None:
    """Raises PageError if `console.write` does not let the user write."""
    if not page.user.may_write:
        setting = page.user.broker.config(CONSOLE_WRITE)
        raise PageError(403, f"This console only reads for {page.user.principal}: {CONSOLE_WRITE.name}={setting}.")


async def read_write_form(page: PageRequest) -> dict[str, str]:
    """The fields of a form that writes. Raises PageError for a user who may not write, and for a
    form that is not of the user's session.
    """
    check_may_write(page)
    return await read_page_form(page.http, page.user.form_token)


def render_form(
    page: PageRequest, template: str, form: Mapping[str, str], problem: str = "", **values: object
) -> web.Response:
    """A page with a form. `form`: what the user has entered. `problem`: why it was refused, or
    empty.
    """
    response = page.render(template, form=form, problem=problem, **values)
    response.set_status(400 if problem else 200)
    return response


async def send_as_user(dispatcher: RequestDispatcher, user: ConsoleUser, request: Any) -> Any:
    """Dispatches a request, an instance of a kio class, as if the user had sent it to this broker.
    Returns the response, whose error codes the caller must check.
    """
    key, version = int(request.__api_key__), int(request.__version__)
    frame = write_request(key, version, 0, CLIENT_ID, request)[SIZE_BYTES:]
    connection = ConnectionState(user.host, 0, HTTP_LISTENER.name, user.principal)
    reply = dispatcher.dispatch(frame, read_request_header(frame), connection, MAX_RESPONSE_BYTES)
    assert reply is not None, "only a producer with acks=0 wants no response"
    buffers = await reply if isinstance(reply, Future) else reply
    return read_response(b"".join(buffers)[SIZE_BYTES:], key, version)


def record_outcome(user: ConsoleUser, operation: str, kind: str, name: str, code: ErrorCode, api: ApiKey) -> None:
    """Records in the audit log what the console did for the user with the request `api`, and its
    error code. Denials are left out: the check of the user's rights has recorded them.
    """
    if code not in AUTHORIZATION_ERRORS.values():
        result = DONE if code is ErrorCode.none else code.name.upper()
        user.record_change(operation, AuditedResource(kind, name), result, api)
