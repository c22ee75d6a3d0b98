"""ListTransactions (66), versions 0–2.

- Lists the transactional ids that this broker coordinates and the client may describe (KIP-664),
  filtered by state and producer id. COORDINATOR_LOAD_IN_PROGRESS while a partition is loading.
- v1 adds a minimum duration since the start of the transaction (KIP-994). As in Kafka, an id that
  never had a transaction counts as very old.
- v2 adds a pattern that the whole id matches (KIP-1152), in the syntax of RE2.
"""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i64

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import TransactionMetadata
from ottla_broker.transactions.transaction_metadata import TransactionState as State
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    flexible=0,
    rights=(Right(Operation.describe, ResourceType.transactional_id, refused="left out"),),
)

STATES = {state.title: state for state in State}


@API.handler()
async def list_transactions(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producer_ids = {int(one) for one in request.producer_id_filters}
    now_ms = ctx.broker.runtime.now_ms()
    matches = compile_pattern(request.transactional_id_pattern)

    def matches_filters(transaction: TransactionMetadata) -> bool:
        if request.state_filters and transaction.state not in states:
            return False
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        return request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter

    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(name for name in request.state_filters if name not in STATES),
        transaction_states=tuple(
            TransactionState(
                transactional_id=TransactionalId(transactional_id),
                producer_id=ProducerId(cast(i64, transaction.producer_id)),
                transaction_state=transaction.state.title,
            )
            for transactional_id, transaction in ctx.broker.transactions.coordinator.list_transactions()
            if matches_filters(transaction)
            and matches(transactional_id)
            and ctx.may(Operation.describe, Resource.transactional_id(transactional_id))
        ),
    )


def compile_pattern(pattern: str | None) -> Callable[[str], object]:
    """Returns a function that matches a whole transactional id. Raises
    INVALID_REGULAR_EXPRESSION.
    """
    if not pattern:
        return lambda _: True
    re2 = import_module("re2")  # it has no types, and few requests need it
    options = re2.Options()
    options.log_errors = False
    try:
        match: Callable[[str], object] = re2.compile(pattern, options=options).fullmatch
    except re2.error as reason:
        raise KafkaError(ErrorCode.invalid_regular_expression, f"pattern {pattern!r}: {reason}") from reason
    return match
