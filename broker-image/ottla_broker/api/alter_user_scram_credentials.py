"""AlterUserScramCredentials (51), version 0.

- Sets and removes SCRAM credentials (KIP-554); needs ALTER on the cluster. The client has salted
  the password, so the broker never sees it. All users that are valid change in one commit.
- Each user has one outcome: UNACCEPTABLE_CREDENTIAL (empty name or salt, iterations out of range),
  UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE (named twice), RESOURCE_NOT_FOUND (nothing to
  remove). With an error nothing of the user changes.
"""

from collections import Counter

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.security.scram import (
    MAX_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_from_salted_password,
)
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.sasl import MIN_ITERATIONS

API = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    flexible=0,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.cluster),),
)

Outcomes = dict[str, KafkaError | None]


@API.handler()
async def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([it.name for it in request.deletions] + [it.name for it in request.upsertions])
    try:
        ctx.check_authorized(Operation.alter, CLUSTER)
        controller = ctx.broker.active_controller()
        outcomes: Outcomes = {user: find_error(request, user) for user in users}
        valid = {user: read_changes(request, user) for user, error in outcomes.items() if error is None}
        outcomes |= await controller.alter_scram_credentials(valid)
    except KafkaError as error:
        outcomes = dict.fromkeys(users, error)
    return AlterUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.none if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for user, error in outcomes.items()
        ),
    )


def find_error(request: AlterUserScramCredentialsRequest, user: str) -> KafkaError | None:
    """The error of a user's changes; None if they are valid. Texts are Kafka's."""
    upsertions = [it for it in request.upsertions if it.name == user]
    mechanisms = [int(it.mechanism) for it in request.deletions if it.name == user]
    mechanisms += [int(it.mechanism) for it in upsertions]
    if not user:
        return KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if any(mechanism not in list(ScramMechanism) for mechanism in mechanisms):
        return KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if max(Counter(mechanisms).values()) > 1:
        return KafkaError(ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request")
    if any(it.iterations < MIN_ITERATIONS for it in upsertions):
        return KafkaError(ErrorCode.unacceptable_credential, "Too few iterations")
    if any(it.iterations > MAX_ITERATIONS for it in upsertions):
        return KafkaError(ErrorCode.unacceptable_credential, "Too many iterations")
    if any(not it.salt for it in upsertions):
        return KafkaError(ErrorCode.unacceptable_credential, "Salt must not be empty")
    return None


def read_changes(request: AlterUserScramCredentialsRequest, user: str) -> dict[int, ScramCredential | None]:
    """The changes of a user by mechanism; None removes the credential."""
    changes: dict[int, ScramCredential | None] = {
        int(it.mechanism): None for it in request.deletions if it.name == user
    }
    return changes | {int(it.mechanism): read_credential(it) for it in request.upsertions if it.name == user}


def read_credential(upsertion: ScramCredentialUpsertion) -> ScramCredential:
    mechanism = ScramMechanism(upsertion.mechanism)
    return credential_from_salted_password(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
