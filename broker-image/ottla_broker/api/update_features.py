"""UpdateFeatures (57), versions 0–2.

- Raises and lowers the finalized level of features (KIP-584): of `transaction.version` (KIP-890),
  `group.version` (KIP-848), `streams.version` (KIP-1071) and `share.version` (KIP-932).
  `metadata.version` has one level, and `kraft.version` is never lowered. Needs Alter on the
  cluster; all features change or none.
- INVALID_UPDATE_VERSION for a feature or level that brokers do not support, and for a change in
  another direction than the request says.
- v0 has `allow_downgrade` in place of the kind of change. Up to v1 a successful response names each
  feature. An error concerns the whole request.
"""

from typing import Final

from kio.schema.update_features.v0.request import UpdateFeaturesRequest as RequestV0
from kio.schema.update_features.v0.response import UpdatableFeatureResult as ResultV0
from kio.schema.update_features.v0.response import UpdateFeaturesResponse as ResponseV0
from kio.schema.update_features.v1.request import UpdateFeaturesRequest as RequestV1
from kio.schema.update_features.v1.response import UpdatableFeatureResult as ResultV1
from kio.schema.update_features.v1.response import UpdateFeaturesResponse as ResponseV1
from kio.schema.update_features.v2.request import UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from ottla_broker.metadata.features import FeatureUpdate, UpgradeType
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.UPDATE_FEATURES,
    versions=(0, 2),
    flexible=0,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.cluster),),
)

KNOWN_TYPES: Final = frozenset(UpgradeType)


@API.handler(0, 0)
async def update_with_downgrade_flag(ctx: RequestContext, request: RequestV0) -> ResponseV0:
    updates = [
        FeatureUpdate(
            one.feature,
            int(one.max_version_level),
            UpgradeType.safe_downgrade if one.allow_downgrade else UpgradeType.upgrade,
        )
        for one in request.feature_updates
    ]
    await update_features(ctx, updates, validate_only=False)
    results = tuple(ResultV0(feature=one.feature, error_code=ErrorCode.none, error_message=None) for one in updates)
    return ResponseV0(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, results=results)


@API.handler(1, 1)
async def update_with_results(ctx: RequestContext, request: RequestV1) -> ResponseV1:
    updates = await read_and_update(ctx, request)
    results = tuple(ResultV1(feature=one.feature, error_code=ErrorCode.none, error_message=None) for one in updates)
    return ResponseV1(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, results=results)


@API.handler(2, 2)
async def update_without_results(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    await read_and_update(ctx, request)
    return UpdateFeaturesResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None)


async def read_and_update(ctx: RequestContext, request: RequestV1 | UpdateFeaturesRequest) -> list[FeatureUpdate]:
    updates = [
        read_update(one.feature, int(one.max_version_level), int(one.upgrade_type)) for one in request.feature_updates
    ]
    await update_features(ctx, updates, validate_only=request.validate_only)
    return updates


def read_update(feature: str, level: int, upgrade_type: int) -> FeatureUpdate:
    """Raises INVALID_UPDATE_VERSION for an unknown kind of change."""
    if upgrade_type not in KNOWN_TYPES:
        raise KafkaError(ErrorCode.invalid_update_version, f"upgrade type {upgrade_type} is not 1, 2 or 3")
    return FeatureUpdate(feature, level, UpgradeType(upgrade_type))


async def update_features(ctx: RequestContext, updates: list[FeatureUpdate], *, validate_only: bool) -> None:
    ctx.check_authorized(Operation.alter, CLUSTER)
    await ctx.broker.active_controller().update_features(updates, validate_only=validate_only)
