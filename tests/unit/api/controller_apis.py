"""Requests to the APIs that only the controller serves."""

from types import SimpleNamespace
from typing import Any, cast

from ottla_broker.config import Config
from ottla_broker.dispatcher import answer_locally
from ottla_broker.metadata.controller import Controller
from ottla_broker.runtime import Runtime
from ottla_broker.security.audit import BrokerLogAudit
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.metadata.small_controller import SmallController


class ControllerApis:
    """Sends requests to the handlers of a broker, which is the controller unless `is_controller`
    is false.
    """

    def __init__(self, small: SmallController, *, is_controller: bool = True, authorizer: Authorizer | None = None):
        def active_controller() -> Controller:
            if not is_controller:
                raise KafkaError(ErrorCode.not_controller)
            return small.controller

        broker = SimpleNamespace(
            active_controller=active_controller,
            image=small.image,
            cluster_id="",  # as on a controller that is elected during its start
            quorum=SimpleNamespace(cluster_id="c"),
            node_id=1,
            config=Config.of({"log.dirs": "/nowhere"}),
            audit_log=BrokerLogAudit(lambda: 0.0),
            runtime=Runtime(),
            client_quotas=ClientQuotaManager(QuotaWindows(), lambda: 0.0),
        )
        self._broker = cast(Any, broker)
        self._authorizer = authorizer or AllowAll()

    async def send(self, request: Any) -> Any:
        return await answer_locally(self._broker, request, self._authorizer)
