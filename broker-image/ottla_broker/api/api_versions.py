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

from ottla_broker.api.form import Form
from ottla_broker.api.no_throttle import NO_THROTTLE
from ottla_broker.api.table import served
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.errors import ErrorCode

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return answer(ErrorCode.invalid_request)
        context.connection.software_name, context.connection.software_version = name, version
    return answer(ErrorCode.none)


def answer(error: ErrorCode) -> ApiVersionsResponse:
    """The list, or for an error other than UNSUPPORTED_VERSION just the error."""
    told = () if error not in (ErrorCode.none, ErrorCode.unsupported_version) else tuple(served().values())
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(
            ApiVersion(api_key=i16(api.key), min_version=i16(api.low), max_version=i16(api.high)) for api in told
        ),
        throttle_time=NO_THROTTLE,
    )


FORMS = (Form(0, 4, ApiVersionsRequest, ApiVersionsResponse, api_versions),)
