"""DescribeClientQuotas (48), versions 0–1.

- Lists the quotas of the entities that a filter selects (KIP-546); needs DESCRIBE_CONFIGS on the
  cluster.
- A component of the filter selects a name, the default of its type, or every name. A strict filter
  selects only entities that have no other types. Without components, one that is not strict selects
  all.
- A filter that contradicts itself is INVALID_REQUEST, an unknown entity type UNSUPPORTED_VERSION,
  as in Kafka.
- v1 is flexible.
"""

from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.static.primitive import f64

from ottla_broker.requests.api import DESCRIBE_CLUSTER_CONFIGS, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.client_quotas import QuotaFilter
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1, rights=(DESCRIBE_CLUSTER_CONFIGS,))


@API.handler()
async def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    components = ((it.entity_type, it.match_type, it.match) for it in request.components)
    quota_filter = QuotaFilter.from_components(components, is_strict=request.strict)
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        entries=tuple(
            EntryData(
                entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                values=tuple(ValueData(key=key, value=f64(value)) for key, value in quotas.items()),
            )
            for entity, quotas in ctx.broker.image.client_quotas.items()
            if quota_filter.selects(entity)
        ),
    )
