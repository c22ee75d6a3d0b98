"""The streaming queries of a pipeline: one for each sink, started, monitored and stopped.

Spark's `stop()` aborts the batch in flight, whose work is then repeated and, for topics without
transactions, written twice. So a pipeline that is stopped lets batches complete: the next batch is
refused before it writes anything, and a query between batches is stopped directly. After
`spec.stop.graceful`, batches are aborted.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.replacement import Comparison
from ottla_operator.resources.sinks import Sink
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import BrokersUnavailable, PipelineError, describe_error
from ottla_spark.launch import SparkLaunch
from ottla_spark.librdkafka_properties import to_librdkafka
from ottla_spark.progress import BatchProgress, ProgressLog, QueryOffsets, format_lag
from ottla_spark.reader_schemas import connect_registry, resolve_schemas
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.spark_conf import SHUFFLE_PARTITIONS, spark_interval
from ottla_spark.streaming import checkpoint, dead_letters, session, sink, source, transform
from ottla_spark.streaming.batch_writers import batch_writer
from ottla_spark.streaming.checkpoint import Checkpoint, CheckpointMetadata
from ottla_spark.streaming.comparison import SinkComparer
from ottla_spark.streaming.dead_letter_writer import DeadLetterWriter
from ottla_spark.streaming.encode import record_encoder
from ottla_spark.streaming.event_listener import EventListener, add_listener
from ottla_spark.streaming.kafka_admin import KafkaAdmin
from ottla_spark.streaming.partition_writer import TransactionalSink
from ottla_spark.streaming.reference_table import ReferenceTable
from ottla_spark.streaming.sink_context import SinkContext
from ottla_spark.streaming.topic_writer import topic_writer
from ottla_spark.streaming.traced_records import observe_traced
from ottla_spark.streaming.transactional_writer import TransactionalWriter, count_writers
from ottla_spark.streaming.used_columns import unused_columns
from ottla_spark.streaming.warm_up import run_beside, warm_up_tasks
from ottla_spark.tracing import PipelineTracer, open_tracer

_BATCH_REFUSED: Final = "OttlaBatchRefused"
_INTERRUPTED: Final = "InterruptedException"
_POLL_INTERVAL_S: Final = 0.2
_LAG_TIMEOUT_S: Final = 1.0
_TOPIC_CHECK_INTERVAL_S: Final = 10.0


def run_queries(
    pipeline: PipelineDefinition,
    environment: RuntimeEnvironment,
    launch: SparkLaunch,
    progress: ProgressLog,
    stop_requested: threading.Event,
) -> None:
    """Starts Spark, runs the queries until they end, and stops Spark. Raises PipelineError."""
    tracer = open_tracer(pipeline.name, os.environ)
    registry = connect_registry(pipeline, environment.registry, environment.client_properties)
    pipeline = resolve_schemas(pipeline, registry)
    try:
        spark = session.start_session(pipeline.name, launch.conf, launch.scratch, launch.jvm)
        try:
            if (url := spark.sparkContext.uiWebUrl) is not None:
                progress.write_state("starting", sparkUi=url)
            _run_in_session(spark, pipeline, environment, launch, progress, stop_requested, tracer)
        finally:
            spark.stop()
            if tracer is not None:
                tracer.close()
    except (Py4JJavaError, PySparkException) as error:
        raise PipelineError(describe_error(error)) from error


def _run_in_session(
    spark: SparkSession,
    pipeline: PipelineDefinition,
    environment: RuntimeEnvironment,
    launch: SparkLaunch,
    progress: ProgressLog,
    stop_requested: threading.Event,
    tracer: PipelineTracer | None,
) -> None:
    if not environment.wait_for_start(stop_requested):
        progress.write_state("stopped")
        return
    writing = session.writing_archive(spark, launch.archive, lambda: environment.snapshot.rows > 0)
    with writing, KafkaAdmin(spark, environment.client_properties) as admin:
        files = Checkpoint(spark, environment.checkpoint)
        topic_ids = admin.describe_topic_ids(source_topics(pipeline))
        cores = spark.sparkContext.defaultParallelism
        metadata = checkpoint.resume_metadata(files.read_metadata(), pipeline, topic_ids, launch.conf, cores)
        spark.conf.set(SHUFFLE_PARTITIONS, str(metadata.shuffle_partitions))
        files.write_metadata(metadata)
        QueryRunner(spark, pipeline, environment, admin, files, metadata, progress, stop_requested, tracer).run()


def source_topics(pipeline: PipelineDefinition) -> set[str]:
    """Topics that the pipeline reads now. The checkpoint also has those that it read before."""
    return {source.topic for source in pipeline.spec.sources.values()}


class QueryRunner:
    """Runs the queries. The main thread does everything but the batches, the comparisons and the
    listener's callbacks.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: PipelineDefinition,
        environment: RuntimeEnvironment,
        admin: KafkaAdmin,
        files: Checkpoint,
        metadata: CheckpointMetadata,
        progress: ProgressLog,
        stop_requested: threading.Event,
        tracer: PipelineTracer | None = None,
    ) -> None:
        self._spark = spark
        self._tracer = tracer
        self._topics = {target.query_name: target.topic for target in pipeline.spec.sinks}
        self._pipeline = pipeline
        self._environment = environment
        self._admin = admin
        self._checkpoint = files
        self._metadata = metadata
        self._progress = progress
        self._stop_requested = stop_requested
        self._refuse_batches = threading.Event()
        self._events: queue.SimpleQueue[BatchProgress | str | Sequence[Comparison]] = queue.SimpleQueue()
        self._comparer = SinkComparer(
            spark, pipeline.spec.sinks, pipeline.folder, environment.client_properties, self._events.put
        )
        self._offsets = QueryOffsets()
        self._lag: Mapping[str, Any] = format_lag({}, {}, 0)
        self._topics_checked_at_s = time.monotonic()
        self._queries: list[StreamingQuery] = []
        self._terminated: set[str] = set()
        self._dead_letter_writer: DeadLetterWriter | None = None

    def run(self) -> None:
        """Starts the queries and monitors them until all have ended. Raises PipelineError if one
        fails.
        """
        add_listener(self._spark, EventListener(self._events))
        try:
            self._start()
            self._progress.write_state("running", group=self._pipeline.resource.consumer_group)
            has_nothing_left = self._offsets.all_queries_have_offsets and not self._measure_lag()["records"]
            while self._queries_running() and not self._stop_requested.is_set():
                self._process_events(wait_s=_POLL_INTERVAL_S)
                if self._progress.has_caught_up or has_nothing_left:
                    self._comparer.run_if_due()
            if self._stop_requested.is_set():
                self._progress.write_state("stopping")
                self._stop_after_batches()
            self._await_last_events()
        except BaseException:
            for query in self._queries:
                query.stop()
            raise
        self._raise_failure()
        if self._dead_letter_writer is not None:
            self._dead_letter_writer.flush()
        if not self._stop_requested.is_set():
            self._comparer.finish()
            self._process_events(wait_s=0)
        self._progress.write_state("stopped" if self._stop_requested.is_set() else "finished")

    def _start(self) -> None:
        pipeline, kafka = self._pipeline, self._environment.client_properties
        spec = pipeline.spec
        tables = {
            name: ReferenceTable(self._spark, pipeline, name, kafka, self._admin, self._checkpoint)
            for name in spec.tables
        }
        tasks = warm_up_tasks(self._spark, spec.sinks, tables.values())
        with run_beside(tasks, self._spark.sparkContext.cancelAllJobs, self._stop_requested):
            views = self._build_views(tables)
        written: set[str] = set()
        for target in spec.sinks:
            deferred = views.deferred.get(target.source) if target.source not in written else None
            self._queries.append(self._start_sink(target, views.frames[target.source], deferred))
            written.add(target.source)

    def _build_views(self, tables: Mapping[str, ReferenceTable]) -> transform.Views:
        """Builds the views of the streams and tables, and creates the dead-letter writer if the
        pipeline has a dead-letter topic. Raises PipelineError.
        """
        pipeline, spark, kafka = self._pipeline, self._spark, self._environment.client_properties
        spec, is_traced = pipeline.spec, self._tracer is not None
        raw = {
            name: source.read_stream(spark, stream, kafka, is_traced=is_traced) for name, stream in spec.streams.items()
        }
        rows_of_tables = {name: table.rows() for name, table in tables.items()}
        build = partial(transform.build_views, spark, pipeline, raw, transform.RejectedRowCounter(), rows_of_tables)
        views = build()
        unused = unused_columns(spark, pipeline, [views.rows_for_sinks(it.source) for it in spec.sinks])
        if any(unused.values()):
            views = build(unused)
        if spec.dead_letter is not None:
            self._dead_letter_writer = DeadLetterWriter(
                spark, pipeline, kafka, self._admin, self._checkpoint, tables, deferred=frozenset(views.deferred)
            )
        views.check_deferred(target.source for target in spec.sinks)
        return views

    def _start_sink(
        self, target: Sink, rows: DataFrame, deferred: transform.DeferredExpectations | None
    ) -> StreamingQuery:
        sink.check_columns(target, rows)
        write = self._batch_writer(target, rows)
        sink.create_folder(target, self._pipeline.folder)
        if deferred is None:
            counted = observe_counts(rows)
            return self._start_query(target, counted if self._tracer is None else observe_traced(counted), write)

        def write_rows_and_dead_letters(rows: DataFrame, batch: int) -> None:
            rows.persist()  # otherwise Spark computes the rows twice
            try:
                write(rows.where(dead_letters.satisfies_all(deferred.expectations)), batch)
                self._write_dead_letters(dead_letters.from_rejected(rows, deferred.step, deferred.expectations))
            finally:
                rows.unpersist()

        return self._start_query(target, observe_counts(deferred.rows, deferred), write_rows_and_dead_letters)

    def _batch_writer(self, target: Sink, rows: DataFrame) -> sink.BatchWriter:
        kafka = self._environment.client_properties
        if target.topic is None:
            return batch_writer(target, self._sink_context(target))
        encode = record_encoder(target, rows, self._pipeline.registry)
        if not target.is_transactional:
            return topic_writer(target, rows, kafka, encode)
        topic = target.topic
        # The first record creates a topic that does not exist. Only one partition of it is certain.
        writers = count_writers(rows, self._admin.count_partitions(topic) or 1)
        group = f"{self._pipeline.resource.transaction_prefix}{target.query_name}"
        destination = TransactionalSink(topic, group, to_librdkafka(kafka))
        return TransactionalWriter(target, rows, encode, destination, self._checkpoint, writers)

    def _sink_context(self, target: Sink) -> SinkContext:
        pipeline = self._pipeline
        secrets = self._environment.secrets
        return SinkContext(pipeline.folder, secrets, pipeline.name, target.query_name, self._checkpoint)

    def _write_dead_letters(self, letters: DataFrame) -> None:
        spec = self._pipeline.spec.dead_letter
        if spec is not None:
            records = dead_letters.to_records(letters, self._pipeline.name)
            sink.write_records(records, spec.topic, self._environment.client_properties)

    def _start_query(self, target: Sink, rows: DataFrame, write: sink.BatchWriter) -> StreamingQuery:
        def write_batch(batch_rows: DataFrame, number: int) -> None:
            if self._refuse_batches.is_set():
                raise RuntimeError(_BATCH_REFUSED)
            if self._tracer is not None:
                self._tracer.start_batch(name, number)
            write(batch_rows, number)

        name, trigger = target.query_name, self._pipeline.spec.trigger
        stream = rows.writeStream.foreachBatch(write_batch).outputMode(target.output_mode).queryName(name)
        stream = stream.option("checkpointLocation", self._checkpoint.query_location(name))
        self._offsets.add_query(name, source.subscribed_topics(rows), self._checkpoint.query_end_offsets(name))
        if trigger.available_now:
            stream = stream.trigger(availableNow=True)
        elif trigger.interval is not None:
            stream = stream.trigger(processingTime=spark_interval(trigger.interval))
        try:
            return stream.start()
        except PySparkException as error:
            raise PipelineError(f"sink {name}: {describe_error(error)}") from error

    def _queries_running(self) -> bool:
        """False when all queries have ended or one has failed."""
        running = [query for query in self._queries if query.isActive]
        failed = any(query.exception() is not None for query in self._queries if not query.isActive)
        return bool(running) and not failed

    def _process_events(self, wait_s: float) -> None:
        """Processes the events in the queue; waits for the first at most `wait_s`."""
        try:
            event = self._events.get(timeout=wait_s)
            while True:
                if isinstance(event, str):
                    self._terminated.add(event)
                elif isinstance(event, BatchProgress):
                    self._process_batch(event)
                else:
                    self._progress.write_comparisons(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _process_batch(self, batch: BatchProgress) -> None:
        self._offsets.add_batch(batch)
        # The pipeline goes on if brokers do not respond: Spark itself waits for them as long as the
        # sources' settings say. The next batch commits the offsets of this one too, and until then
        # the last lag is shown.
        with suppress(BrokersUnavailable):
            self._check_topic_ids()
            self._admin.commit_offsets(self._pipeline.resource.consumer_group, self._offsets.committable)
            self._lag = self._measure_lag()
        self._progress.write_batch(batch, self._lag)
        if self._tracer is not None:
            self._tracer.record_batch(batch, self._topics[batch.query])
        if self._dead_letter_writer is not None:
            known_ends = self._offsets.committable if self._offsets.all_queries_reported else {}
            self._dead_letter_writer.after_batch(batch, known_ends)
        if self._pipeline.spec.dead_letter is not None:
            dead_letters.check_rate(batch.dead_letters, batch.rows, self._pipeline.spec.dead_letter)

    def _measure_lag(self) -> Mapping[str, Any]:
        # Spark's `latestOffset` is from before the batch: by it, a pipeline that reads all records
        # would never have a lag.
        processed = self._offsets.processed
        lag_records = self._offsets.lag_records(self._admin.list_end_offsets(processed))
        lagging = {partition: processed[partition] for partition, records in lag_records.items() if records}
        written_ms = self._admin.read_timestamps(lagging, _LAG_TIMEOUT_S)
        return format_lag(lag_records, written_ms, time.time_ns() // 1_000_000)

    def _check_topic_ids(self) -> None:
        if time.monotonic() - self._topics_checked_at_s < _TOPIC_CHECK_INTERVAL_S:
            return
        self._topics_checked_at_s = time.monotonic()
        current = self._admin.describe_topic_ids(source_topics(self._pipeline))
        checkpoint.check_topic_ids(self._metadata.topics, current)

    def _stop_after_batches(self) -> None:
        """Stops each query when its batch has completed, or at the deadline."""
        self._refuse_batches.set()
        deadline = self._graceful_deadline()
        while running := [query for query in self._queries if query.isActive]:
            expired = time.monotonic() > deadline
            for query in running:
                if expired or not query.status["isTriggerActive"]:
                    query.stop()
            if not expired:
                self._process_events(wait_s=_POLL_INTERVAL_S)

    def _await_last_events(self) -> None:
        """Stops the queries and waits for their events, which arrive late, at most for
        `spec.stop.graceful`. Termination is the last event of a query.
        """
        for query in self._queries:
            if query.isActive:
                query.stop()
        deadline = self._graceful_deadline()
        while len(self._terminated) < len(self._queries) and time.monotonic() < deadline:
            self._process_events(wait_s=_POLL_INTERVAL_S)

    def _graceful_deadline(self) -> float:
        return time.monotonic() + parse_duration_ms(self._pipeline.spec.stop.graceful) / 1000

    def _raise_failure(self) -> None:
        """Raises the error of the query that failed as PipelineError, if one has. Others were
        interrupted because of it, some in the middle of a batch.
        """
        failed = [(query.name, error) for query in self._queries if (error := query.exception()) is not None]
        causes = [(query, error) for query, error in failed if _BATCH_REFUSED not in str(error)]
        for query, error in sorted(causes, key=lambda it: _INTERRUPTED in str(it[1])):
            if self._tracer is not None:
                self._tracer.record_failure(query, self._topics[query], error)
            raise PipelineError(describe_error(error))


def observe_counts(rows: DataFrame, deferred: transform.DeferredExpectations | None = None) -> DataFrame:
    """The same rows. The progress event has their counts: `rows` are written, and `dead` are
    rejected by the deferred expectations.
    """
    if deferred is None:
        return rows.observe("counts", F.count(F.lit(1)).alias("rows"))
    satisfied = dead_letters.satisfies_all(deferred.expectations)
    counts = (F.count_if(satisfied).alias("rows"), F.count_if(~satisfied).alias("dead"))
    return rows.observe("counts", *counts, *dead_letters.count_by_rule(deferred.step, deferred.expectations))
