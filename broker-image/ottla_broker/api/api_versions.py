"""ApiVersions (18), versions 0–4.

- Answers which APIs the broker serves in which versions; clients ask it first on every connection.
- A version above ours is answered in version 0 with UNSUPPORTED_VERSION and the list, so that a newer client can
  step down (KIP-511); the server does that, because such a request cannot even be read.
- v3 is flexible and brings the client's software name and version, which must look like a name; v4 differs from it
  in features only.
- No features are announced: nothing of ours is switched on by one.
"""

import re

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.static.primitive import i16

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.API_VERSIONS, versions=(0, 4), flexible=3, is_served_while_starting=True)

CLIENT_SOFTWARE_SINCE = 3
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@API.handler()
async def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= CLIENT_SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return api_versions_response(ErrorCode.invalid_request)
        context.connection.software_name, context.connection.software_version = name, version
    return api_versions_response(ErrorCode.none)


def api_versions_response(error: ErrorCode) -> ApiVersionsResponse:
    """With the list of APIs, unless the error is another than UNSUPPORTED_VERSION."""
    served = SERVED_VERSIONS.items() if error in (ErrorCode.none, ErrorCode.unsupported_version) else ()
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(
            ApiVersion(api_key=i16(key), min_version=i16(first), max_version=i16(last)) for key, (first, last) in served
        ),
        throttle_time=NO_THROTTLE,
    )
