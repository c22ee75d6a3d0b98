"""Answers a broker's own requests without a connection: what it asks of the controller while it is that itself."""

from typing import TYPE_CHECKING, Any

from ottla_broker.api.form import refusal
from ottla_broker.api.table import form_of
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.authorizer import Authorizer
from ottla_broker.wire.codec import response_class
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla_broker.broker import Broker


class InProcess:
    """`await answers(request)`: the answer in the request's own version, as one that came over a connection. KafkaError where an answer has no
    place for its code."""

    def __init__(self, broker: "Broker", authorizer: Authorizer) -> None:
        self._broker = broker
        self._authorizer = authorizer
        self._peer = ConnectionState("in-process", 0, broker.config.inter_broker_listener)

    async def __call__(self, request: Any) -> Any:
        key, version = int(request.__api_key__), int(request.__version__)
        form = form_of(key, version)
        assert form is not None, f"{type(request).__name__} is not served in version {version}"
        context = RequestContext(self._broker, self._peer, version, None, self._authorizer)
        try:
            response = await form.handle(context, convert_message(request, form.request))
        except KafkaError as reason:
            response = refusal(form.response, reason)
        return convert_message(response, response_class(key, version))
