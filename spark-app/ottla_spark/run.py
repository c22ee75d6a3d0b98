"""Running a pipeline: one Spark query for each sink, watched, reported and stopped here.

Stopping: Spark's own `stop()` aborts the batch in flight, whose work is then done, and for topics written, a second
time. So a pipeline that is asked to stop lets batches end: the next one is refused before it writes anything, and a
query between batches is stopped as it is. When `spec.stop.graceful` has passed, batches are aborted after all.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla_spark import checkpoint, dead_letter, jars, progress, session, sink, source, transform
from ottla_spark.cluster import Cluster
from ottla_spark.duration import interval, milliseconds
from ottla_spark.now import Now
from ottla_spark.set_aside import SetAside
from ottla_spark.spec import Pipeline, Sink
from ottla_spark.trouble import NotInstalled, Trouble, in_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_REFUSED: Final = "OttlaBatchRefused"
_TURN_S: Final = 0.2
_LAG_PATIENCE_S: Final = 1.0
_IDENTITY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline runs: brokers, its files, and Spark's master (None: this machine). `conf`: Spark's settings over the
    pipeline's own. `now`: what is told of it, for others to read."""

    bootstrap: str
    checkpoint: str
    progress: Path | None = None
    log: Path | None = None
    master: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    now: Now = field(default_factory=Now)

    @property
    def client(self) -> dict[str, str]:
        """The Kafka client's settings."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap}


def run(pipeline: Pipeline, place: Place, asked_to_stop: threading.Event) -> None:
    """Runs until the pipeline has ended, is asked to stop, or fails.

    Trouble says why it failed; the report has it too.
    """
    report = progress.Report(place.progress, pipeline.name, place.now)
    if pipeline.spec.state == "suspended":
        report.state("suspended")
        return
    report.state("starting")
    scratch = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
    try:
        _run_in_words(pipeline, place, asked_to_stop, report, scratch)
    except Trouble as trouble:
        report.state("failed", error=str(trouble))
        raise
    except BaseException as error:
        report.state("failed", error=f"unexpected: {in_words(error)}")
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_in_words(
    pipeline: Pipeline, place: Place, asked_to_stop: threading.Event, report: progress.Report, scratch: Path
) -> None:
    """The same as `_run`, with Spark's errors as Trouble."""
    try:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise NotInstalled("pipelines need PySpark: pip install 'ottla[spark]'") from error
    try:
        _run(pipeline, place, asked_to_stop, report, scratch)
    except (Py4JJavaError, PySparkException) as error:
        raise Trouble(in_words(error)) from error


def _run(
    pipeline: Pipeline, place: Place, asked_to_stop: threading.Event, report: progress.Report, scratch: Path
) -> None:
    session.check_java()
    fetched = jars.connector(say=lambda what: report.state("starting", doing=what))
    log = place.log or scratch / "spark.log"
    wished = {**pipeline.spec.spark.conf, **place.conf}
    conf = session.settings(wished, master=place.master, jars=fetched, scratch=scratch, log=log)
    spark = session.start(pipeline.name, conf)
    try:
        with Cluster(spark, place.client) as cluster:
            kept = checkpoint.Checkpoint(spark, place.checkpoint)
            topics = cluster.topic_ids(topics_of(pipeline))
            facts = checkpoint.settle(kept.read(), pipeline, topics, conf, spark.sparkContext.defaultParallelism)
            spark.conf.set(session.SHUFFLE_PARTITIONS, str(facts.shuffle_partitions))
            kept.write(facts)
            Running(spark, pipeline, place, cluster, kept, facts, report, asked_to_stop).to_the_end()
    finally:
        spark.stop()


def topics_of(pipeline: Pipeline) -> set[str]:
    """That it reads now. A checkpoint knows those that it has read before, too, which may be gone."""
    return {made.topic for made in pipeline.spec.sources.values()}


class Running:
    """The queries of a pipeline while they run. Everything but `_batch` and the listener happens on the main thread."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        place: Place,
        cluster: Cluster,
        kept: checkpoint.Checkpoint,
        facts: checkpoint.Facts,
        report: progress.Report,
        asked_to_stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._place = place
        self._cluster = cluster
        self._kept = kept
        self._facts = facts
        self._report = report
        self._asked_to_stop = asked_to_stop
        self._refusing = threading.Event()
        self._events: queue.SimpleQueue[progress.Batch | str] = queue.SimpleQueue()
        self._positions = progress.Positions()
        self._identified_at = time.monotonic()
        self._queries: list[StreamingQuery] = []
        self._ended: set[str] = set()
        self._aside: SetAside | None = None

    def to_the_end(self) -> None:
        """Starts the queries and watches them until all have ended. Trouble when one fails."""
        self._spark.streams.addListener(listener(self._events))
        try:
            self._start()
            self._report.state("running", group=self._pipeline.group)
            while self._queries_alive() and not self._asked_to_stop.is_set():
                self._take_events(wait_s=_TURN_S)
            if self._asked_to_stop.is_set():
                self._report.state("stopping")
                self._let_batches_end()
            self._await_last_events()
        except BaseException:
            for query in self._queries:
                query.stop()
            raise
        self._raise_failure()
        if self._aside is not None:
            self._aside.close()
        self._report.state("stopped" if self._asked_to_stop.is_set() else "finished")

    # -- starting

    def _start(self) -> None:
        pipeline, spark, client = self._pipeline, self._spark, self._place.client
        spec = pipeline.spec
        raw = {
            name: source.table(spark, of, client) if of.mode == "table" else source.stream(spark, of, client)
            for name, of in spec.sources.items()
        }
        graph = transform.graph(spark, pipeline, raw, transform.Counting())
        if spec.dead_letter is not None:
            self._aside = SetAside(spark, pipeline, client, self._cluster, self._kept, late=frozenset(graph.late))
        graph.check_late(target.source for target in spec.sinks)
        told: set[str] = set()
        for target in spec.sinks:
            late = graph.late.get(target.source) if target.source not in told else None
            self._queries.append(self._sink_query(target, graph.tables[target.source], late))
            told.add(target.source)

    def _sink_query(self, target: Sink, rows: DataFrame, late: transform.Late | None) -> StreamingQuery:
        write = sink.writer(target, self._place.client, self._pipeline.folder)
        sink.check(target, rows)
        sink.check_place(target, self._pipeline.folder)
        if late is None:
            return self._query(target.query, counted(rows), target.output_mode, write)

        def write_both(rows: DataFrame, batch: int) -> None:
            rows.persist()  # or Spark would ask its state twice
            try:
                write(rows.where(dead_letter.all_hold(late.expectations)), batch)
                self._write_letters(dead_letter.broken(rows, late.step, late.expectations))
            finally:
                rows.unpersist()

        return self._query(target.query, counted(late.rows, late), target.output_mode, write_both)

    def _write_letters(self, letters: DataFrame) -> None:
        letter = self._pipeline.spec.dead_letter
        if letter is not None:
            sink.write_records(dead_letter.records(letters, self._pipeline.name), letter.topic, self._place.client)

    def _query(self, name: str, rows: DataFrame, mode: str, write: sink.Writer) -> StreamingQuery:
        def batch(batch_rows: DataFrame, number: int) -> None:
            if self._refusing.is_set():
                raise RuntimeError(_REFUSED)
            write(batch_rows, number)

        from pyspark.errors import PySparkException

        trigger = self._pipeline.spec.trigger
        stream = rows.writeStream.foreachBatch(batch).outputMode(mode).queryName(name)
        stream = stream.option("checkpointLocation", self._kept.query(name))
        self._positions.begin(name, source.read_by(rows), self._kept.processed(name))
        if trigger.available_now:
            stream = stream.trigger(availableNow=True)
        elif trigger.interval is not None:
            stream = stream.trigger(processingTime=interval(trigger.interval))
        try:
            return stream.start()
        except PySparkException as error:
            raise Trouble(f"sink {name}: {in_words(error)}") from error

    # -- watching

    def _queries_alive(self) -> bool:
        """Whether all queries run on; one that has failed ends the others, one that has finished does not."""
        alive = [query for query in self._queries if query.isActive]
        failed = any(query.exception() is not None for query in self._queries if not query.isActive)
        return bool(alive) and not failed

    def _take_events(self, wait_s: float) -> None:
        """Takes what queries have told; waits a little for the first."""
        try:
            event = self._events.get(timeout=wait_s)
            while True:
                if isinstance(event, str):
                    self._ended.add(event)
                else:
                    self._done(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _done(self, batch: progress.Batch) -> None:
        self._positions.add(batch)
        self._check_identity()
        self._cluster.commit(self._pipeline.group, self._positions.ends)
        # Spark's own `latestOffset` is of before the batch: a pipeline that takes all there is would always be up to date by that.
        known = self._positions.known
        behind = self._positions.behind(self._cluster.newest(known))
        waiting = {partition: known[partition] for partition, records in behind.items() if records}
        written = self._cluster.written_ms(waiting, _LAG_PATIENCE_S)
        self._report.batch(batch, progress.lag(behind, written, time.time_ns() // 1_000_000))
        if self._aside is not None:
            self._aside.after(batch, self._positions.ends if self._positions.everyone_told else {})
        if self._pipeline.spec.dead_letter is not None:
            dead_letter.judge(batch.dead, batch.rows, self._pipeline.spec.dead_letter)

    def _check_identity(self) -> None:
        if time.monotonic() - self._identified_at < _IDENTITY_S:
            return
        self._identified_at = time.monotonic()
        checkpoint.check_topics(self._facts.topics, self._cluster.topic_ids(topics_of(self._pipeline)))

    # -- ending

    def _let_batches_end(self) -> None:
        self._refusing.set()
        deadline = time.monotonic() + milliseconds(self._pipeline.spec.stop.graceful) / 1000
        while active := [query for query in self._queries if query.isActive]:
            late = time.monotonic() > deadline
            for query in active:
                if late or not query.status["isTriggerActive"]:
                    query.stop()
            if not late:
                self._take_events(wait_s=_TURN_S)

    def _await_last_events(self) -> None:
        """Spark tells of batches a little later than it does them; that a query has ended is the last it tells of
        it."""
        for query in self._queries:
            if query.isActive:
                query.stop()
        deadline = time.monotonic() + milliseconds(self._pipeline.spec.stop.graceful) / 1000
        while len(self._ended) < len(self._queries) and time.monotonic() < deadline:
            self._take_events(wait_s=_TURN_S)

    def _raise_failure(self) -> None:
        for query in self._queries:
            error = query.exception()
            if error is not None and _REFUSED not in str(error):
                raise Trouble(in_words(error))


def counted(rows: DataFrame, late: transform.Late | None = None) -> DataFrame:
    """The same rows, counted on the way for the progress event: `rows` that are written, and `dead` ones that are set
    aside."""
    from pyspark.sql import functions as F

    if late is None:
        return rows.observe("counts", F.count(F.lit(1)).alias("rows"))
    good = dead_letter.all_hold(late.expectations)
    return rows.observe("counts", F.count_if(good).alias("rows"), F.count_if(~good).alias("dead"))


def listener(events: queue.SimpleQueue[progress.Batch | str]) -> Any:
    """Puts batches, and at last the id of each query's run that has ended, into the queue."""
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            pass

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            events.put(progress.batch(event.progress.json))

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            events.put(str(event.runId))

    return Listener()
