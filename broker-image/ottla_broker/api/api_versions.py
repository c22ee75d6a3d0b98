"""ApiVersions (18), versions 0–4.

- Lists the APIs that the broker serves, with their versions. Clients send it first on every
  connection.
- A version above the broker's is answered in version 0 with UNSUPPORTED_VERSION and the list, so
  that a newer client can step down (KIP-511). The dispatcher does that, because such a request
  cannot be read.
- v3 is flexible and adds the client's software name and version, which must look like a name, and
  features (KIP-584). v4 also lists features whose lowest level is 0.
- The APIs of clients' metrics (KIP-714) are listed if the broker can read metrics, with the extra
  `telemetry`. Kafka lists them with a plugin that receives metrics.
- Features: `metadata.version`, finalized at Apache Kafka 4.1's level, and `kraft.version`,
  finalized at 1 (KIP-853), which cannot be changed; and those that UpdateFeatures changes:
  `transaction.version`, by which producers choose the transaction protocol (KIP-890),
  `group.version`, without which consumers have the classic protocol alone (KIP-848),
  `streams.version` (KIP-1071) and `share.version` (KIP-932). The epoch of the finalized features is
  the offset of the last metadata record applied, as in Kafka.
"""

import re
from functools import cache
from typing import Final

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.static.primitive import i16, i64

from ottla_broker.metadata.features import FEATURES
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.telemetry.otlp import is_installed
from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.API_VERSIONS, versions=(0, 4), flexible=3, is_served_while_starting=True, rights=())

CLIENT_SOFTWARE_SINCE: Final = 3
TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
LOWEST_LEVEL_0_SINCE: Final = 4
"""Clients of older versions cannot read a supported feature whose lowest level is 0
(KAFKA-17011).
"""


@API.handler()
async def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.version >= CLIENT_SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=NO_THROTTLE)
        ctx.connection.software_name, ctx.connection.software_version = name, version
    return api_versions_response(ErrorCode.none, ctx.broker.image, ctx.version)


def api_versions_response(
    error: ErrorCode, image: MetadataImage | None = None, version: int = 0
) -> ApiVersionsResponse:
    """`image`: has the finalized features; None leaves out all features."""
    features = () if image is None else FEATURES.values()
    levels = [] if image is None else [(feature.name, image.feature_level(feature)) for feature in features]
    return ApiVersionsResponse(
        error_code=error,
        api_keys=_served_apis(),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(
                name=feature.name,
                min_version=i16(feature.lowest),
                max_version=i16(feature.highest),
            )
            for feature in features
            if feature.lowest or version >= LOWEST_LEVEL_0_SINCE
        ),
        finalized_features_epoch=i64(-1 if image is None else image.end_offset - 1),
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, min_version_level=i16(level), max_version_level=i16(level))
            for name, level in levels
            if level
        ),
    )


@cache
def _served_apis() -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api_key=i16(key), min_version=i16(first), max_version=i16(last))
        for key, (first, last) in SERVED_VERSIONS.items()
        if key < FIRST_OWN_KEY and (key not in TELEMETRY or is_installed())
    )
