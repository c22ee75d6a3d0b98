"""The pages that produce one record: a new one, or the copy of a record in a topic that the user
chooses.
"""

import random
from collections.abc import Mapping
from urllib.parse import quote

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.login import redirect
from ottla_broker.console.message_query import parse_record_position
from ottla_broker.console.partition_reader import OffsetRange, read_chunk
from ottla_broker.console.record_encoding import encode_fields
from ottla_broker.console.record_form import BYTE_FORMS, SCHEMA_FORM, RecordFormError, parse_record
from ottla_broker.console.requests import MAX_INT64, PageError, PageRequest
from ottla_broker.console.topics import TopicPages, may_describe_topic
from ottla_broker.console.user_requests import check_may_write, read_write_form, record_outcome, render_form
from ottla_broker.metadata.image import TopicImage
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError, describe_os_error
from ottla_broker.wire.partitioner import partition_for_key
from ottla_broker.wire.records import Record, encode_batch, iter_records


class ProducePages:
    """Users need WRITE on the topic, as producers do; for a copy also READ on the topic of the
    original.
    """

    def __init__(
        self, broker: Broker, requests: ClusterRequests, topics: TopicPages, registry: LazyRegistry | None
    ) -> None:
        self._broker = broker
        self._requests = requests
        self._topics = topics
        self._registry = registry

    async def show(self, page: PageRequest) -> web.Response:
        check_may_write(page)
        return self._render_produce(page, self._topics.find_topic(page), {})

    async def produce(self, page: PageRequest) -> web.Response:
        form = await read_write_form(page)
        topic = self._topics.find_topic(page)
        page.user.check(Operation.write, Resource.topic(topic.name), ApiKey.PRODUCE)
        try:
            encoded = await encode_fields(self._registry, page.user, topic.name, form)
            record = parse_record(form, self._broker.runtime.now_ms(), encoded)
            return await self._append(page, topic, form.get("partition", ""), record)
        except (RecordFormError, KafkaError) as reason:
            return self._render_produce(page, topic, form, describe_problem(reason))

    async def show_copy(self, page: PageRequest) -> web.Response:
        check_may_write(page)
        return self._render_copy(page, {"topic": self._topics.find_topic(page).name})

    async def copy(self, page: PageRequest) -> web.Response:
        """Produces a copy with the same bytes of key, value and headers, and the present time."""
        form = await read_write_form(page)
        source = self._topics.find_topic(page)
        page.user.check(Operation.read, Resource.topic(source.name), ApiKey.FETCH)
        name = form.get("topic", "").strip()
        target = self._broker.image.topics.get(name)
        if target is None or not may_describe_topic(page, name):
            return self._render_copy(page, form, f"There is no topic {name!r} that {page.user.principal} may describe.")
        page.user.check(Operation.write, Resource.topic(target.name), ApiKey.PRODUCE)
        found = await self._read(source, *parse_record_position(page))
        record = Record(self._broker.runtime.now_ms(), found.key, found.value, found.headers)
        try:
            return await self._append(page, target, form.get("partition", ""), record)
        except (RecordFormError, KafkaError) as reason:
            return self._render_copy(page, form, describe_problem(reason))

    async def _read(self, topic: TopicImage, partition: int, offset: int) -> Record:
        """The record at the offset. Raises PageError, KafkaError, OSError."""
        if partition in topic.partitions and offset <= MAX_INT64:
            async with self._requests.new_client() as client:
                chunk = await read_chunk(client, topic.name, OffsetRange(partition, offset, offset + 1))
            found = await self._broker.runtime.run_in_thread(find_record, chunk.records, offset)
            if found is not None:
                return found
        raise PageError(404, f"{topic.name}-{partition} has no record at offset {offset}.")

    async def _append(self, page: PageRequest, topic: TopicImage, partition_text: str, record: Record) -> web.Response:
        """Produces the record and redirects to its page. `partition_text`: as the user wrote it.
        Raises PageError, RecordFormError, KafkaError.
        """
        partition = choose_partition(topic, partition_text, record.key)
        code = ErrorCode.request_timed_out  # until the leader responds
        try:
            offset = await self._requests.client.produce(topic.name, partition, encode_batch([record]))
            code = ErrorCode.none
        except KafkaError as reason:
            code = reason.code
            raise
        except OSError as reason:
            why = describe_os_error(reason) or "no response in time"
            unknown = f"It is unknown whether {topic.name}-{partition} has the record: {why}."
            raise PageError(502, f"{unknown} Search for it before you produce it again.") from reason
        finally:
            record_outcome(page.user, "WRITE", "TOPIC", topic.name, code, ApiKey.PRODUCE)
        return redirect(f"/topics/{quote(topic.name)}/messages/{partition}/{offset}")

    def _render_produce(
        self, page: PageRequest, topic: TopicImage, form: Mapping[str, str], problem: str = ""
    ) -> web.Response:
        has_registry = self._registry is not None
        forms = (*BYTE_FORMS, SCHEMA_FORM) if has_registry else BYTE_FORMS
        return render_form(page, "produce.html", form, problem, topic=topic, forms=forms, has_registry=has_registry)

    def _render_copy(self, page: PageRequest, form: Mapping[str, str], problem: str = "") -> web.Response:
        partition, offset = parse_record_position(page)
        topic = self._topics.find_topic(page)
        return render_form(page, "copy_record.html", form, problem, topic=topic, partition=partition, offset=offset)


def find_record(records: bytes, offset: int) -> Record | None:
    """The record at the offset, in the batches `records`. None for a control record, and for one
    that compaction has removed. Raises CORRUPT_MESSAGE.
    """
    for header, record in iter_records(records):
        if record.offset == offset:
            return None if header.is_control else record
    return None


def choose_partition(topic: TopicImage, partition_text: str, key: bytes | None) -> int:
    """The partition that the user names; if that is empty, the one that Java's client chooses for
    the key, or any for a record without key. Raises RecordFormError.
    """
    wanted, count = partition_text.strip(), len(topic.partitions)
    if not wanted:
        return random.randrange(count) if key is None else partition_for_key(key, count)
    if not (wanted.isdecimal() and int(wanted) in topic.partitions):
        raise RecordFormError(f"{topic.name} has no partition {wanted[:20]!r}; it has 0 to {count - 1}")
    return int(wanted)


def describe_problem(reason: RecordFormError | KafkaError) -> str:
    if isinstance(reason, RecordFormError):
        return str(reason)
    return reason.message or f"The broker refused the record: {reason.code.name.upper()}."
