"""Declarations of the APIs in `ottla_broker.api`, and the handlers of their versions.

    API = Api(
        ApiKey.LEAVE_GROUP,
        versions=(0, 5),
        flexible=4,
        rights=(Right(Operation.read, ResourceType.group),),
    )

    @API.handler(0, 2)
    async def remove_member(ctx: RequestContext, request: LeaveGroupRequestV2) -> ...

A handler is written for the messages of the last of its versions. Requests of its other versions
are converted to that version before the handler runs, and its responses are converted back. A file
is imported when its first request arrives, which keeps the broker's start short and the messages of
unused APIs out of memory. `served_versions` has the versions, which must be known before the
import.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, wraps
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import msgspec

from ottla_broker.requests.context import AUTHORIZATION_ERRORS, RequestContext
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import request_class, response_class
from ottla_broker.wire.errors import NO_ERROR, KafkaError
from ottla_broker.wire.message_schema import schema_of

HandleRequest = Callable[[RequestContext, Any], Awaitable[Any]]
T = TypeVar("T")
H = TypeVar("H", bound=HandleRequest)


class Handler(msgspec.Struct, frozen=True):
    """Handles versions `first` to `last` of an API, as messages of the classes `request` and
    `response`.

    A KafkaError that `handle` raises becomes the response's top-level error code. If the response
    has no such field, the connection is closed. The handler itself sets the error codes of topics
    and partitions.
    """

    first: int
    last: int
    request: type
    response: type
    handle: HandleRequest


CHECK_NEXT: Final = "the next one is checked"
"""The `refused` of a right where a client needs either this right or the next."""


class Right(msgspec.Struct, frozen=True):
    """An authorization that an API requires: an operation on a kind of resource.

    `when`: for which requests, if not for all. `refused`: the response to a client without it, if
    not the resource's authorization error. `is_checked_first`: no handler runs for a client without
    it; such a right is one on the cluster.
    """

    operation: Operation
    kind: ResourceType
    when: str = ""
    refused: str = ""
    is_checked_first: bool = False

    @property
    def refusal(self) -> str:
        return self.refused or AUTHORIZATION_ERRORS[self.kind].name.upper()


CLUSTER_ACTION: Final = Right(Operation.cluster_action, ResourceType.cluster, is_checked_first=True)
ALTER_CLUSTER: Final = Right(Operation.alter, ResourceType.cluster, is_checked_first=True)
DESCRIBE_CLUSTER: Final = Right(Operation.describe, ResourceType.cluster, is_checked_first=True)
DESCRIBE_CLUSTER_CONFIGS: Final = Right(Operation.describe_configs, ResourceType.cluster, is_checked_first=True)


class Api(msgspec.Struct, frozen=True):
    """`versions`: first and last that are served. `flexible`: the first with tagged fields
    (KIP-482), None: none. `rights`: the authorizations that it requires, in the order of the
    checks; docs/protocol.md lists them.

    `is_forwarded`: clients may send it to any broker, and only the active controller can answer
    (KIP-590). `is_served_while_starting`: other brokers need its response to start, or to continue.
    `starts_no_task`: its handlers are run as a `SameTurnTask`.
    """

    key: ApiKey
    versions: tuple[int, int]
    flexible: int | None
    rights: tuple[Right, ...]
    is_forwarded: bool = False
    is_served_while_starting: bool = False
    starts_no_task: bool = False
    handlers: list[Handler] = msgspec.field(default_factory=list)

    def handler(self, first: int | None = None, last: int | None = None) -> Callable[[H], H]:
        """Declares the handler of versions `first` to `last`; of all versions without them."""
        first = self.versions[0] if first is None else first
        last = self.versions[1] if last is None else last

        def declare(handle: H) -> H:
            request, response = request_class(self.key, last), response_class(self.key, last)
            checked = with_rights_checked([it for it in self.rights if it.is_checked_first], handle)
            self.handlers.append(Handler(first, last, request, response, checked))
            return checked

        return declare


def with_rights_checked(rights: Sequence[Right], handle: H) -> H:
    """The handler, which runs only for clients with these rights on the cluster, and raises the
    authorization error for others.
    """
    if not rights:
        return handle

    @wraps(handle)
    async def check_and_handle(ctx: RequestContext, request: Any) -> Any:
        for right in rights:
            ctx.check_authorized(right.operation, CLUSTER)
        return await handle(ctx, request)

    return cast(H, check_and_handle)


@cache
def find_api(key: int) -> Api | None:
    """The declaration of an API; None if it is not served. Imports its file."""
    if key not in SERVED_VERSIONS:
        return None
    api: Api = import_module(f"ottla_broker.api.{ApiKey(key).name.lower()}").API
    return api


@cache
def find_handler(key: int, version: int) -> Handler | None:
    """None when the version is not served, or is read and written by a FrameHandler."""
    api = find_api(key)
    handlers = () if api is None else api.handlers
    return next((handler for handler in handlers if handler.first <= version <= handler.last), None)


async def respond(handler: Handler, context: RequestContext, request: Any) -> Any:
    """The handler's response, or one with the error that it raised. Raises the error where a
    response has no place for it."""
    try:
        return await handler.handle(context, request)
    except KafkaError as error:
        return build_error_response(handler.response, error)


async def catch_error(work: Awaitable[object]) -> KafkaError:
    """The error that `work` raises, which becomes the result of one item of a response; NO_ERROR
    without one.
    """
    try:
        await work
    except KafkaError as error:
        return error
    return NO_ERROR


def build_error_response(response: type[T], error: KafkaError, **others: Any) -> T:
    """An empty response, or an empty item of one, with the error. `others`: values of other fields.

    Lists that may be null are null, as in Kafka: an empty list would tell a member of a streams
    group that it has lost all tasks. Raises the error where the response has no place for it.
    """
    message: type = response
    fields = schema_of(message).all_fields
    if all(one.name != "error_code" for one in fields):
        raise error
    values = {one.name: None if one.array and one.nullable else one.default for one in fields}
    for name, value in (("error_code", error.code), ("error_message", error.message)):
        if name in values:
            values[name] = value
    return response(**values | others)
