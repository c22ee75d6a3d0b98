"""The pages of a topic's messages: a page of records, one record, searches as streams of events,
and exports.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.message_query import (
    MessageQuery,
    available_formats,
    check_format,
    parse_query,
    parse_record_position,
)
from ottla_broker.console.partition_reader import Chunk, OffsetRange, find_ranges, read_chunk
from ottla_broker.console.record_display import (
    MAX_SHOWN,
    MAX_SHOWN_ALONE,
    DisplayedRecord,
    DisplayForm,
    display_record,
)
from ottla_broker.console.registry_access import find_schemas
from ottla_broker.console.requests import MAX_INT64, SECURITY_HEADERS, PageError, PageRequest
from ottla_broker.console.schema_framing import schema_id_of
from ottla_broker.console.search import Search, SearchUpdate
from ottla_broker.console.search_messages import ExportFormat, ScanRecords, StartSearch
from ottla_broker.console.search_process import SearchProcess
from ottla_broker.console.topics import TopicPages
from ottla_broker.metadata.image import TopicImage
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import iter_records

MAX_SEARCHES: Final = 4
"""Concurrent searches of all users on one broker; each has a process."""
PROGRESS_INTERVAL_S: Final = 0.1
"""Shortest time from an event to one that reports progress only."""
FORMAT_LABELS: Final[Mapping[ExportFormat, str]] = {"jsonl": "JSON lines", "csv": "CSV", "parquet": "Parquet"}
MEDIA_TYPES: Final[Mapping[ExportFormat, str]] = {
    "jsonl": "application/x-ndjson; charset=utf-8",
    "csv": "text/csv; charset=utf-8; header=present",
    "parquet": "application/vnd.apache.parquet",
}
FOLLOW_FIRST: Final = 10
"""Following begins this number of offsets before the end of each partition."""


class MessagePages:
    """Users need READ on the topic, as consumers do."""

    def __init__(
        self, broker: Broker, requests: ClusterRequests, topics: TopicPages, registry: LazyRegistry | None
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._requests = requests
        self._topics = topics
        self._search_count = 0

    async def show(self, page: PageRequest) -> web.Response:
        topic, query = self._find_topic(page), parse_query(page)
        partitions = select_partitions(topic, query)
        records = await self._browse(page, topic, partitions, query) if query.mode == "browse" else []
        return page.render(
            "messages.html",
            topic=topic,
            query=query,
            records=records,
            text=page.http.rel_url.raw_query_string,
            formats=[(it, FORMAT_LABELS[it]) for it in available_formats()],
        )

    async def show_record(self, page: PageRequest) -> web.Response:
        topic = self._find_topic(page)
        form: DisplayForm = "hex" if page.text("form") == "hex" else "auto"
        partition, offset = parse_record_position(page)
        if partition not in topic.partitions or offset > MAX_INT64:
            raise PageError(404, f"There is no partition {partition} of {topic.name}, or no such offset.")
        range_ = OffsetRange(partition, offset, offset + 1)
        async with self._requests.new_client() as client:
            try:
                chunk = await read_chunk(client, topic.name, range_)
            except KafkaError as error:
                if error.code is not ErrorCode.offset_out_of_range:
                    raise
                chunk = Chunk(b"", offset, offset)
        found = await self._decode(page, chunk, partition, range_.end, 1, form, MAX_SHOWN_ALONE)
        if not found or found[0].offset != offset:
            raise PageError(404, f"{topic.name}-{partition} has no record at offset {offset}.")
        return page.render("record.html", topic=topic, record=found[0], form=form)

    async def stream(self, page: PageRequest) -> web.StreamResponse:
        """A search, or the records that arrive, as server-sent events: JSON with `progress`, `html`
        (rows of the table), or `error` at the end. The browser ends a search by closing the
        connection.
        """
        topic, query = self._find_topic(page), parse_query(page)
        start = self._make_start(query, None)
        response = await start_stream(page, "text/event-stream; charset=utf-8")
        with suppress(ConnectionError):  # the browser has what it wanted
            try:
                async with self._search(page, topic, query, start, query.limit) as (search, process):
                    await self._send_events(
                        page, topic, response, search.follow(process) if query.mode == "follow" else search.run(process)
                    )
            except (PageError, KafkaError, OSError) as reason:  # also when the browser is gone: the write fails again
                await response.write(encode_event({"error": str(reason) or "a broker does not respond in time"}))
            await response.write_eof()
        return response

    async def _send_events(
        self, page: PageRequest, topic: TopicImage, response: web.StreamResponse, updates: AsyncIterator[SearchUpdate]
    ) -> None:
        sent_s = 0.0
        async for update in updates:
            check_still_allowed(page, topic)
            now_s = time.monotonic()
            if not (update.response.found or update.is_done or now_s - sent_s >= PROGRESS_INTERVAL_S):
                continue
            sent_s = now_s
            data: dict[str, object] = {"progress": update.progress.to_json(now_s, is_done=update.is_done)}
            if update.response.found:
                data["html"] = page.renderer.render("record_rows.html", topic=topic, records=update.response.found)
            await response.write(encode_event(data))

    async def export(self, page: PageRequest) -> web.StreamResponse:
        """All records that a search finds, as a file. A failure aborts the connection, so that
        nobody takes a part of the file for the whole.
        """
        topic, query = self._find_topic(page), parse_query(page)
        check_format(query.export_format)
        start = self._make_start(query, query.export_format)
        async with self._search(page, topic, query, start, MAX_INT64) as (search, process):
            media_type, file_name = MEDIA_TYPES[query.export_format], f"{topic.name}.{query.export_format}"
            response = await start_stream(page, media_type, file_name)
            try:
                async for update in search.run(process):
                    check_still_allowed(page, topic)
                    if update.response.exported:
                        await response.write(update.response.exported)
                await response.write(await process.finish_export())
            except (PageError, KafkaError, OSError):
                if page.http.transport is not None:
                    page.http.transport.abort()
                return response
            await response.write_eof()
        return response

    def _find_topic(self, page: PageRequest) -> TopicImage:
        """The topic of the path. Raises PageError, or TOPIC_AUTHORIZATION_FAILED without READ on
        it.
        """
        topic = self._topics.find_topic(page)
        page.user.check(Operation.read, Resource.topic(topic.name), ApiKey.FETCH)
        return topic

    def _make_start(self, query: MessageQuery, export_format: ExportFormat | None) -> StartSearch:
        has_registry = self._registry is not None
        return StartSearch(query.expression, query.key.encode() or None, query.form, export_format, has_registry)

    @asynccontextmanager
    async def _search(
        self, page: PageRequest, topic: TopicImage, query: MessageQuery, start: StartSearch, limit: int
    ) -> AsyncIterator[tuple[Search, SearchProcess]]:
        """Counts the search, and starts it with its worker process. `limit`: records to find.
        Raises PageError, KafkaError, OSError.
        """
        if self._search_count >= MAX_SEARCHES:
            raise PageError(429, f"{MAX_SEARCHES} searches run on this broker; try again when one has ended.")
        self._search_count += 1
        try:
            async with self._requests.new_client() as client, self._make_process(page, start) as process:
                newest = FOLLOW_FIRST if query.mode == "follow" else limit
                ranges = await find_ranges(client, topic, select_partitions(topic, query), query.start, newest)
                for one in ranges:
                    one.next = min(query.positions.get(one.partition, one.next), one.end)
                yield Search(client, topic.name, ranges, limit, lambda: self._search_count), process
        finally:
            self._search_count -= 1

    def _make_process(self, page: PageRequest, start: StartSearch) -> SearchProcess:
        return SearchProcess(start, partial(find_schemas, self._registry, page.user))

    async def _browse(
        self, page: PageRequest, topic: TopicImage, partitions: list[int], query: MessageQuery
    ) -> list[DisplayedRecord]:
        """The records of one page: the newest first for start `newest`, else the oldest first."""
        async with self._requests.new_client() as client:
            found: list[DisplayedRecord] = []
            for range_ in await find_ranges(client, topic, partitions, query.start, query.limit):
                wanted = query.limit
                while range_.left and wanted > 0:
                    chunk = await read_chunk(client, topic.name, range_)
                    range_.next = chunk.next
                    records = await self._decode(
                        page, chunk, range_.partition, range_.end, wanted, query.form, MAX_SHOWN
                    )
                    found += records
                    wanted -= len(records)
        found.sort(key=lambda it: (it.timestamp_ms, it.partition, it.offset), reverse=query.start.kind == "newest")
        return found[: query.limit]

    async def _decode(
        self, page: PageRequest, chunk: Chunk, partition: int, end: int, limit: int, form: DisplayForm, max_shown: int
    ) -> list[DisplayedRecord]:
        """The first records of a chunk below offset `end`. If one of them may have a schema, a
        worker process decodes all of them.
        """
        found, may_have_schema = await self._broker.runtime.run_in_thread(
            decode_chunk, chunk, partition, end, limit, form, max_shown
        )
        if self._registry is None or not may_have_schema or form != "auto":
            return found
        start = StartSearch("", None, form, has_registry=True, max_shown=max_shown)
        async with self._make_process(page, start) as process:
            return (await process.scan(ScanRecords(partition, chunk.records, chunk.first, end, limit))).found


def check_still_allowed(page: PageRequest, topic: TopicImage) -> None:
    """Raises PageError if the user may not read the topic any more: streams outlive their check."""
    if not (page.user.is_logged_in() and page.user.may(Operation.read, Resource.topic(topic.name))):
        raise PageError(403, "the session has ended, or access rules have changed")


def select_partitions(topic: TopicImage, query: MessageQuery) -> list[int]:
    """Raises PageError for a partition that the topic does not have."""
    if query.partition is None:
        return sorted(topic.partitions)
    if query.partition not in topic.partitions:
        raise PageError(404, f"{topic.name} has no partition {query.partition}.")
    return [query.partition]


def decode_chunk(
    chunk: Chunk, partition: int, end: int, limit: int, form: DisplayForm, max_shown: int
) -> tuple[list[DisplayedRecord], bool]:
    """The first records of the chunk below offset `end`, and whether one of them may have a schema.
    Raises CORRUPT_MESSAGE.
    """
    found: list[DisplayedRecord] = []
    may_have_schema = False
    for header, record in iter_records(chunk.records):
        if record.offset >= end or len(found) >= limit:
            break
        if record.offset >= chunk.first and not header.is_control:
            found.append(display_record(partition, record, form, max_shown))
            may_have_schema |= schema_id_of(record.value) is not None or schema_id_of(record.key) is not None
    return found, may_have_schema


async def start_stream(page: PageRequest, content_type: str, file_name: str = "") -> web.StreamResponse:
    """A response whose body the caller writes. `file_name`: of a download."""
    headers = {**SECURITY_HEADERS, "Content-Type": content_type}
    if file_name:
        headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    response = web.StreamResponse(headers=headers)
    await response.prepare(page.http)
    return response


def encode_event(data: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
