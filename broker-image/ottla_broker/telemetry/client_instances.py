"""The client instances that request subscriptions and push metrics (KIP-714), with the rules that
Kafka's ClientMetricsManager applies to their requests.

An instance is kept until it has sent no request for an hour and for three push intervals. Above
`MAX_INSTANCES` the one that has been silent for longest is dropped. There is no timer: expiry is
checked when a request arrives.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from ottla_broker.metadata.image import CLIENT_METRICS_RESOURCE, MetadataImage
from ottla_broker.telemetry.subscription import ClientSubscription, find_client_subscription
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_INSTANCES: Final = 16_384
MIN_EXPIRY_MS: Final = 3_600_000
INTERVALS_TO_EXPIRY: Final = 3
COMPRESSION_TYPES: Final = frozenset(Compression)
MAY_ASK_AT_ONCE: Final = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
NEVER: Final = 0

ClientParameters = Mapping[str, str | None]
"""A client by the parameters of `match`: client_id, client_software_name and so on."""


class Push(msgspec.Struct, frozen=True):
    """The fields of a PushTelemetry request except the metrics. `compression`: the number of
    the codec. `size`: bytes of the metrics as they were sent."""

    instance_id: UUID
    subscription_id: int
    is_terminating: bool
    compression: int
    size: int


@dataclass(slots=True)
class ClientInstance:
    """`version`: the version of all subscriptions at which `subscription` was computed. `get_ms`,
    `push_ms`: when `accept_get` and `accept_push` last returned True; `seen_ms`: when the last
    request arrived.
    """

    client: ClientParameters
    subscription: ClientSubscription
    version: int
    get_ms: int = NEVER
    push_ms: int = NEVER
    seen_ms: int = NEVER
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.none

    def accept_get(self, now_ms: int) -> bool:
        """False before the push interval has passed since the last accepted request."""
        if now_ms - max(self.get_ms, self.push_ms) < self.subscription.interval_ms:
            return False
        self.get_ms = now_ms
        return True

    def accept_push(self, now_ms: int) -> bool:
        """False before the push interval has passed. The first push after a subscription may come
        earlier, because clients spread their first pushes over the interval."""
        if self.get_ms <= self.push_ms and now_ms - self.push_ms < self.subscription.interval_ms:
            return False
        self.push_ms = now_ms
        return True

    def expiry_ms(self) -> int:
        """How long the instance is kept after its last request."""
        return max(MIN_EXPIRY_MS, self.subscription.interval_ms * INTERVALS_TO_EXPIRY)


class ClientInstances:
    """`max_bytes`: largest size of the metrics in a push."""

    def __init__(self, image: MetadataImage, max_bytes: int) -> None:
        self._image = image
        self.max_bytes = max_bytes
        self._version = 1
        self._by_id: OrderedDict[UUID, ClientInstance] = OrderedDict()  # the longest silent one first

    def __len__(self) -> int:
        return len(self._by_id)

    def on_subscriptions_changed(self) -> None:
        """Called when a client-metrics resource has changed. Each client gets its new subscription
        with its next request."""
        self._version += 1

    def get_subscription(self, instance_id: UUID, client: ClientParameters, now_ms: int) -> ClientSubscription:
        """Returns the client's subscription. Raises THROTTLING_QUOTA_EXCEEDED before the push
        interval has passed, unless the subscription has changed or the last push was rejected with
        an error after which the client requests its subscription at once.
        """
        instance = self._find_or_create(instance_id, client, now_ms)
        if not instance.accept_get(now_ms) and instance.last_error not in MAY_ASK_AT_ONCE:
            raise _too_early(instance_id)
        instance.last_error = ErrorCode.none
        return instance.subscription

    def check_push(self, push: Push, client: ClientParameters, now_ms: int) -> ClientInstance:
        """Returns the instance that may push. Raises INVALID_REQUEST after a terminating push,
        THROTTLING_QUOTA_EXCEEDED before the push interval has passed unless the client terminates,
        UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE; the first that
        applies in this order, as in Kafka."""
        instance = self._find_or_create(push.instance_id, client, now_ms)
        try:
            self._check(instance, push, now_ms)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = push.is_terminating
        instance.last_error = ErrorCode.none
        return instance

    def _check(self, instance: ClientInstance, push: Push, now_ms: int) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.invalid_request, f"client {push.instance_id} has sent its last push")
        if not instance.accept_push(now_ms) and not push.is_terminating:
            raise _too_early(push.instance_id)
        if push.subscription_id != instance.subscription.id:
            raise KafkaError(
                ErrorCode.unknown_subscription_id,
                f"subscription {push.subscription_id} of client {push.instance_id} is outdated",
            )
        if push.compression not in COMPRESSION_TYPES:
            raise KafkaError(ErrorCode.unsupported_compression_type, f"compression type {push.compression} is unknown")
        if push.size > self.max_bytes:
            raise KafkaError(
                ErrorCode.telemetry_too_large, f"{push.size} bytes of metrics; telemetry.max.bytes={self.max_bytes}"
            )

    def _find_or_create(self, instance_id: UUID, client: ClientParameters, now_ms: int) -> ClientInstance:
        """The instance, with a subscription computed from the present resources. One whose
        subscription was outdated begins again.
        """
        instance = self._by_id.get(instance_id)
        if instance is None or instance.version < self._version:
            client = client if instance is None else instance.client
            instance = self._by_id[instance_id] = ClientInstance(
                client, find_client_subscription(self._resources(), client, instance_id), self._version
            )
        instance.seen_ms = now_ms
        self._by_id.move_to_end(instance_id)
        self._drop_silent(now_ms)
        return instance

    def _resources(self) -> list[Mapping[str, str]]:
        configs = self._image.configs
        return [configs[key] for key in sorted(configs) if key[0] == CLIENT_METRICS_RESOURCE]

    def _drop_silent(self, now_ms: int) -> None:
        while len(self._by_id) > 1:
            instance_id, instance = next(iter(self._by_id.items()))
            if len(self._by_id) <= MAX_INSTANCES and now_ms - instance.seen_ms < instance.expiry_ms():
                return
            del self._by_id[instance_id]


def _too_early(instance_id: UUID) -> KafkaError:
    return KafkaError(
        ErrorCode.throttling_quota_exceeded,
        f"Request from the client [{instance_id}] arrived before the next push interval time",
    )
