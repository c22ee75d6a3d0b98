"""`python -m ottla_spark validate|run|test|jars`: pipelines from their YAML, without an operator.

Exit codes: 0 it ended as it should, 1 it failed or rows differ, 2 the pipeline or the command line is wrong, 3 Java
or PySpark is missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ottla_spark.spec import Pipeline, load
from ottla_spark.trouble import NotInstalled, Trouble


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Says what went wrong in one line on standard error."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.command == "jars":
            from ottla_spark import jars

            print(*jars.connector(folder=asked.into, say=_tell), sep="\n")
            return 0
        pipeline = load(asked.pipeline, asked.name)
    except Trouble as trouble:
        _tell_last(str(trouble), asked)
        return 2
    try:
        return int({"validate": _validate, "run": _run, "test": _test}[asked.command](pipeline, asked))
    except NotInstalled as trouble:
        _tell_last(str(trouble), asked)
        return 3
    except Trouble as trouble:
        _tell_last(f"pipeline {pipeline.name}: {trouble}", asked)
        return 2 if asked.command == "validate" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla_spark", description="Runs Pipeline resources on Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    validate = commands.add_parser("validate", help="says whether a pipeline is right")
    validate.add_argument("--shape", action="store_true", help="only look at the YAML: quick, needs no Java")
    run = commands.add_parser("run", help="runs a pipeline until it ends or is asked to stop (SIGTERM, Ctrl-C)")
    run.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="brokers")
    run.add_argument(
        "--checkpoint", metavar="FOLDER", help="where it keeps how far it is; without it, spec.checkpoint.path"
    )
    run.add_argument("--progress", type=Path, metavar="FILE", help="file to append progress to, as lines of JSON")
    run.add_argument("--log", type=Path, metavar="FILE", help="Spark's own log; without it, beside the progress")
    run.add_argument("--master", help="Spark's master; without it, this machine's cores")
    run.add_argument("--kafka", action="append", default=[], metavar="NAME=VALUE", help="a setting of the Kafka client")
    run.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark, over the pipeline's own"
    )
    run.add_argument("--http", metavar="HOST:PORT", help="where to serve /livez, /readyz, /status and /metrics")
    run.add_argument(
        "--stay", action="store_true", help="when the pipeline has finished, go on serving --http until asked to stop"
    )
    run.add_argument("--last-words", type=Path, metavar="FILE", help="file to write to what went wrong, in one line")
    test = commands.add_parser("test", help="runs a pipeline on JSON lines beside it and compares the rows")
    test.add_argument(
        "--cases", type=Path, metavar="FOLDER", help="without it, the pipeline's file name with .test for .yaml"
    )
    for command in (validate, run, test):
        command.add_argument(
            "--pipeline", type=Path, required=True, metavar="FILE", help="YAML or JSON with a Pipeline resource"
        )
        command.add_argument("--name", help="which Pipeline, when the file has several")
    fetch = commands.add_parser("jars", help="fetches the jars that Spark needs to speak with brokers, once")
    fetch.add_argument("--into", type=Path, metavar="FOLDER", help="without it, $OTTLA_SPARK_JARS or the user's cache")
    return parser


def _run(pipeline: Pipeline, asked: argparse.Namespace) -> int:
    from ottla_spark.run import Place, run
    from ottla_spark.serving import serving

    location = asked.checkpoint or (pipeline.spec.checkpoint.path if pipeline.spec.checkpoint else None)
    if location is None:
        raise Trouble("say where to keep the checkpoint: --checkpoint, or spec.checkpoint.path")
    if "://" not in location:
        location = str(Path(location).absolute() if asked.checkpoint else (pipeline.folder / location).absolute())
    log = asked.log or (asked.progress.with_suffix(".spark.log") if asked.progress else None)
    place = Place(
        bootstrap=asked.bootstrap,
        checkpoint=location,
        progress=asked.progress,
        log=log.absolute() if log else None,
        master=asked.master,
        kafka=_settings(asked.kafka),
        conf=_settings(asked.conf),
    )
    asked_to_stop = _stop_signals()
    with serving(_address(asked.http), place.now):
        with _quiet(log):
            run(pipeline, place, asked_to_stop)
        if asked.stay:
            asked_to_stop.wait()
    return 0


def _settings(given: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (it.partition("=") for it in given)}


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise Trouble(f"--http: {text!r} is no HOST:PORT")
    return host, int(port)


def _stop_signals() -> threading.Event:
    """Set when the process is asked to stop.

    Spark handles Ctrl-C itself once it runs, by dropping work: its handler is not let in.
    """
    asked_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_stop.set())
    return asked_to_stop


def _validate(pipeline: Pipeline, asked: argparse.Namespace) -> int:
    if not asked.shape:
        from ottla_spark.testing import plan

        with _quiet(None):
            plan(pipeline)
    _tell(f"pipeline {pipeline.name}: valid")
    return 0


def _test(pipeline: Pipeline, asked: argparse.Namespace) -> int:
    from ottla_spark.testing import test

    cases = asked.cases or asked.pipeline.with_suffix(".test")
    with _quiet(None):
        differences = test(pipeline, cases, say=_tell)
    return 1 if differences else 0


_own_error = sys.stderr


def _tell_last(sentence: str, asked: argparse.Namespace) -> None:
    """What went wrong, also for whoever started us (Kubernetes shows it as the container's termination message)."""
    _tell(sentence)
    if getattr(asked, "last_words", None) is not None:
        asked.last_words.write_text(f"{sentence}\n")


def _tell(sentence: str) -> None:
    print(sentence, file=_own_error, flush=True)


@contextmanager
def _quiet(log: Path | None) -> Iterator[None]:
    """Java writes to standard error; what it writes goes to the log. Ours still reaches the person."""
    global _own_error
    sys.stderr.flush()
    kept = os.dup(2)
    _own_error = os.fdopen(kept, "w")
    target = os.open(log if log is not None else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)


if __name__ == "__main__":
    sys.exit(main())
