"""Every API refuses the requests that Apache Kafka refuses, with the same response: users without
rights, and users with each single right, send the same requests to both brokers.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla_broker.requests.api import find_api
from ottla_broker.security.authorizer import IMPLIED_BY, OPERATIONS, Operation, ResourceType
from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode
from tests.clients.access_probes import BETWEEN_BROKERS, SINCE, Names, probes
from tests.clients.api_session import KEYS, VERSIONS, Json, encode_values, exchange, has_message_class
from tests.clients.response_differences import find_differences
from tests.clients.secured_pair import SecuredBroker, run_secured_pair
from tests.clients.walks.normalized_responses import ResponseNormalizer
from tests.waiting import eventually_async

CLOSED: Final = "the connection is closed"
NOT_TRIED: Final = frozenset(
    {"sasl_handshake", "sasl_authenticate", "api_versions", "get_telemetry_subscriptions", "push_telemetry"}
)
"""APIs that require no right."""
EARLY_ACCESS: Final = {
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
}
"""Apache Kafka 4.1 serves streams groups only with these settings."""
PREFIXED, LITERAL, ALLOW = 4, 3, 3
RIGHTS: Final = [(kind, operation) for kind, operations in OPERATIONS.items() for operation in operations]


def user_of(kind: ResourceType, operation: Operation) -> str:
    return f"{kind.name}_{operation.name}".replace("_", "")


NOBODY: Final = "nobody"
STREAMS_APIS: Final = ("streams_group_heartbeat", "streams_group_describe")
STREAMS_USERS: Final = ("streams", "streamscreates")
STREAMS: Final = ((ResourceType.group, Operation.read), (ResourceType.topic, Operation.describe))
RIGHTS_OF: Final = {
    **{user_of(kind, operation): ((kind, operation),) for kind, operation in RIGHTS},
    **dict(zip(STREAMS_USERS, (STREAMS, (*STREAMS, (ResourceType.topic, Operation.create))), strict=True)),
}
USERS: Final = [NOBODY, *RIGHTS_OF]
"""A user without rights, one user for each right, and two members of streams groups, which need
several rights.
"""


class KnownDifference(NamedTuple):
    """`where` matches the beginning of `api, case: user vN: .path Kafka …, we …`."""

    where: str
    because: str


KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        r"fetch, a replica: clusterclusteraction ",
        "the replica does not exist: test_same_answers.py has the difference",
    ),
    KnownDifference("broker_heartbeat, .* Kafka 'the connection is closed'", "Kafka fails with an internal exception"),
    KnownDifference(r"describe_log_dirs, .*\.partition_size ", "Kafka may not have counted the record yet"),
    KnownDifference(r".*_delegation_token, .*\.(token_id|hmac) ", "they are random"),
    KnownDifference(
        r"describe_quorum, .*(high_watermark|log_end_offset|replica_directory_id|listeners.*) ",
        "the log has other records, and no listener of a controller",
    ),
    KnownDifference(
        r"streams_group_heartbeat, .*\.status Kafka None, we \[\]",
        "in an error response; Kafka 4.2 returns an empty list, too",
    ),
    KnownDifference(
        "alter_configs, all brokers: .* Kafka 'invalid_config'", "Kafka refuses to drop what its format had set"
    ),
)


@dataclass(frozen=True)
class SentRequest:
    """A request: its user, API, case and version."""

    user: str
    api: str
    case: str
    version: int

    def __str__(self) -> str:
        return f"{self.api}, {self.case}: {self.user} v{self.version}"


def test_every_api_refuses_what_apache_kafka_refuses() -> None:
    with run_secured_pair(USERS, EARLY_ACCESS, num_partitions=1, auto_create_topics_enable=False) as (kafka, ottla):
        theirs, ours = asyncio.run(send_to_both(kafka, ottla))
    assert theirs.keys() == ours.keys()
    tried = {request.api for request in ours}
    untried = {api for api in VERSIONS if ApiKey[api.upper()] < FIRST_OWN_KEY} - tried - NOT_TRIED - {"envelope"}
    assert untried == set(), "access_probes.py has no request of these APIs"
    assert differences(theirs, ours) == []
    assert find_undeclared_rights(ours) == [], "rights that matter, and that no Api(…, rights=…) declares"


def differences(theirs: dict[SentRequest, Json], ours: dict[SentRequest, Json]) -> list[str]:
    lines = [
        f"{request}: {path} Kafka {wanted!r}, we {got!r}"
        for request in ours
        for path, wanted, got in find_differences(theirs[request], ours[request])
    ]
    return [line for line in lines if not any(re.match(known.where, line) for known in KNOWN_DIFFERENCES)]


def find_undeclared_rights(answers: dict[SentRequest, Json]) -> list[str]:
    """Rights that change a response although the API does not declare them: operation, resource
    and API.
    """
    found = {}
    for kind, operation in RIGHTS:
        user = user_of(kind, operation)
        for request, answer in answers.items():
            api = find_api(KEYS[request.api])
            assert api is not None
            declared = {(right.kind, each) for right in api.rights for each in implied_by(right.operation)}
            without = answers[replace(request, user=NOBODY)]
            if (
                request.user == user
                and (kind, operation) not in declared
                and without_user_name(answer, user) != without_user_name(without)
            ):
                found[f"{operation.name} {kind.name} of {request.api}"] = True
    return list(found)


def implied_by(operation: Operation) -> frozenset[Operation]:
    return IMPLIED_BY.get(operation, frozenset({operation}))


def without_user_name(answer: Json, user: str = NOBODY) -> str:
    return re.sub(rf"\b{user}\b", "USER", repr(answer))


async def send_to_both(kafka: SecuredBroker, ottla: SecuredBroker) -> list[dict[SentRequest, Json]]:
    prepared = [await prepare(side) for side in (kafka, ottla)]
    sides = [(side, ids) for side, (ids, _) in zip((kafka, ottla), prepared, strict=True)]
    kafka_versions = prepared[0][1]
    return [dict(await send_all(side, ids, kafka_versions)) for side, ids in sides]


async def prepare(side: SecuredBroker) -> tuple[dict[str, UUID], dict[int, tuple[int, int]]]:
    """Creates the resources that the users' requests name, and the users' rights. Returns ids of
    topics by user, and the versions of APIs.
    """
    admin = await side.open_as("")

    async def send(api: str, version: int, **fields: Any) -> Any:
        return await exchange(admin, api, version, fields)

    names = [Names.of_user(user, UUID(int=0)) for user in USERS]
    wanted = [{"name": it.topic, "num_partitions": 1, "replication_factor": 1} for it in names]
    made = await send("create_topics", 7, topics=wanted, timeout=10_000)
    assert {one.error_code for one in made.topics} == {ErrorCode.none}, made
    rights = [
        {
            "resource_type": int(kind),
            "resource_name": "kafka-cluster" if kind is ResourceType.cluster else pattern_of(kind, user),
            "resource_pattern_type": LITERAL if kind is ResourceType.cluster else PREFIXED,
            "principal": f"User:{user}",
            "host": "*",
            "operation": int(operation),
            "permission_type": ALLOW,
        }
        for user, granted_rights in RIGHTS_OF.items()
        for kind, operation in granted_rights
    ]
    served = await send(
        "update_features",
        1,
        timeout=10_000,
        feature_updates=[
            {"feature": feature, "max_version_level": 1, "upgrade_type": 1}
            for feature in ("share.version", "streams.version")
        ],
    )
    assert served.error_code is ErrorCode.none, served  # Kafka 4.1 serves these groups once the features are enabled
    granted = await send("create_acls", 3, creations=rights)
    assert {one.error_code for one in granted.results} == {ErrorCode.none}, granted

    async def are_offsets_committed() -> bool:
        codes = set()
        for it in names:
            at = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
            group = {"group_id": it.group, "generation_id_or_member_epoch": -1, "member_id": ""}
            await send("find_coordinator", 4, key_type=0, coordinator_keys=[it.group])
            committed = await send("offset_commit", 8, **group, topics=[{"name": it.topic, "partitions": at}])
            codes.add(committed.topics[0].partitions[0].error_code)
        return codes == {ErrorCode.none}

    await eventually_async(are_offsets_committed)

    async def has_producer_ids() -> bool:
        made = await send("init_producer_id", 4, producer_id=-1, producer_epoch=-1)
        return bool(made.error_code is ErrorCode.none)

    await eventually_async(has_producer_ids)

    async def has_transaction_coordinators() -> bool:
        ids = [it.transactional_id for it in names]
        found = await send("find_coordinator", 4, key_type=1, coordinator_keys=ids)
        description = await send("describe_transactions", 0, transactional_ids=ids)
        codes = {one.error_code for one in (*found.coordinators, *description.transaction_states)}
        return codes <= {ErrorCode.none, ErrorCode.transactional_id_not_found}

    await eventually_async(has_transaction_coordinators)
    records = [{"index": 0, "records": encode_values(b"first")}]
    data = [{"name": it.topic, "partition_data": records} for it in names]
    written = await send("produce", 9, acks=-1, timeout=10_000, topic_data=data)
    assert {one.partition_responses[0].error_code for one in written.responses} == {ErrorCode.none}, written
    versions = admin.versions
    admin.close()
    return {name.user: topic.topic_id for name, topic in zip(names, made.topics, strict=True)}, versions


def pattern_of(kind: ResourceType, user: str) -> str:
    return "User:" if kind is ResourceType.user else f"{user}."


async def send_all(
    side: SecuredBroker, ids: dict[str, UUID], kafka_versions: dict[int, tuple[int, int]]
) -> list[tuple[SentRequest, Json]]:
    return [
        answer for user in USERS for answer in await send_as_user(side, Names.of_user(user, ids[user]), kafka_versions)
    ]


async def send_as_user(
    side: SecuredBroker, names: Names, kafka_versions: dict[int, tuple[int, int]]
) -> list[tuple[SentRequest, Json]]:
    channels: dict[bool, Channel] = {}
    answers: list[tuple[SentRequest, Json]] = []
    normalizer = ResponseNormalizer("", {names.topic_id: "<topic>"})
    for api, case, fields in probes(names):
        if names.user in STREAMS_USERS and api not in STREAMS_APIS:
            continue
        between_brokers = api in BETWEEN_BROKERS
        for version in versions_tried(names.user, api, SINCE.get((api, case), 0), kafka_versions):
            if between_brokers not in channels or not channels[between_brokers].is_open:
                channels[between_brokers] = await side.open_as(names.user, to_controller=between_brokers)
            try:
                answer = await asyncio.wait_for(exchange(channels[between_brokers], api, version, fields), 20)
            except ConnectionError:
                normal: Json = CLOSED
            else:
                if between_brokers:
                    normal = refusal(answer)
                elif names.user in STREAMS_USERS:
                    normal = normalize_streams_response(answer)
                else:
                    normal = normalizer.normalize(answer)
                if api == "create_delegation_token" and answer.error_code is ErrorCode.none:
                    await wait_until_described(side, answer.hmac)
            answers.append((SentRequest(names.user, api, case, version), normal))
    for channel in channels.values():
        channel.close()
    return answers


async def wait_until_described(side: SecuredBroker, hmac: bytes) -> None:
    """Waits until the token is described. Apache Kafka's broker may answer the creation before it
    has read the token from the metadata log.
    """
    reader = await side.open_as(user_of(ResourceType.user, Operation.describe_tokens))

    async def is_described() -> bool:
        described = await exchange(reader, "describe_delegation_token", 3, {"owners": None})
        return any(token.hmac == hmac for token in described.tokens)

    await eventually_async(is_described)
    reader.close()


def normalize_streams_response(response: Any) -> Json:
    """What rights decide in a response about a streams group. Kafka 4.1 assigns tasks at once and
    describes no topology. Ottla, like Kafka 4.2, assigns them later and describes the topology.
    """
    if hasattr(response, "groups"):
        return [[group.error_code.name, group.authorized_operations] for group in response.groups]
    details = [status.status_detail for status in response.status or () if "topics" in status.status_detail]
    return [response.error_code.name, details]


def refusal(response: Any) -> str:
    return "refused" if response.error_code is ErrorCode.cluster_authorization_failed else "not refused"


def versions_tried(user: str, api: str, since: int, kafka_versions: dict[int, tuple[int, int]]) -> Iterator[int]:
    """The versions that both brokers serve, from `since` on: all of them for the user without
    rights, the first and the last for other users.
    """
    first, last = VERSIONS[api]
    low, high = kafka_versions.get(KEYS[api], (first, last))
    common = range(max(first, low, since), min(last, high) + 1)
    both = [version for version in common if has_message_class(api, version)]
    yield from both if user == NOBODY else dict.fromkeys((both[0], both[-1]))
