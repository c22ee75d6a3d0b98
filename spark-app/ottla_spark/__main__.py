"""`python -m ottla_spark validate|run|test|jars`: runs pipelines from their YAML, without an
operator.

Exit codes: 0 success; 1 the pipeline failed, or a test case did; 2 the command line or the file is
invalid, or `validate` found an error; 3 Java, PySpark or another package that the pipeline needs is
missing. `jars` has only 0 and 2. `run` and `test` exit with 1, not 2, for errors in SQL and for
invalid values of options.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from ottla_spark import jars
from ottla_spark.catch_up import CatchUpDisplay
from ottla_spark.definition import PipelineDefinition, load_pipeline
from ottla_spark.errors import MissingDependency, PipelineError
from ottla_spark.http_server import serve_progress
from ottla_spark.reader_schemas import resolve_schemas
from ottla_spark.run import require_pyspark, run_pipeline
from ottla_spark.run_report import RunReport
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.schema_registry import SchemaRegistry

LOGIN_PROPERTIES: Final = ("security.protocol", "sasl.mechanism", "sasl.jaas.config")
CERTIFICATE, CERTIFICATE_KEY = "user.crt", "user.key"
AUTHORITIES: Final = "ca.crt"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code. Errors are one line on standard error."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "jars":
            print(*jars.ensure_jars(options.sinks, folder=options.into, notify=_report), sep="\n")
            return 0
        pipeline = load_pipeline(options.pipeline, options.name)
    except PipelineError as error:
        _report_error(str(error), options)
        return 2
    try:
        return int({"validate": _validate, "run": _run, "test": _test}[options.command](pipeline, options))
    except MissingDependency as error:
        _report_error(str(error), options)
        return 3
    except PipelineError as error:
        _report_error(f"pipeline {pipeline.name}: {error}", options)
        return 2 if options.command == "validate" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla_spark", description="Run Pipeline resources on Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    validate = commands.add_parser("validate", help="check a pipeline without running it")
    validate.add_argument("--shape", action="store_true", help="check only the YAML, not the SQL; needs no Java")
    run = commands.add_parser("run", help="run a pipeline until it finishes or is stopped by SIGTERM or Ctrl-C")
    run.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="addresses of some brokers")
    run.add_argument("--checkpoint", metavar="FOLDER", help="checkpoint location (default: spec.checkpoint.path)")
    run.add_argument("--progress", type=Path, metavar="FILE", help="file to append progress to, as JSON lines")
    run.add_argument(
        "--show-progress", action="store_true", help="show progress and an estimate until the pipeline has caught up"
    )
    run.add_argument("--report", type=Path, metavar="FILE", help="HTML file with plots of rates, lag and rejected rows")
    run.add_argument("--log", type=Path, metavar="FILE", help="Spark's log (default: beside the --progress file)")
    run.add_argument("--master", help="Spark master URL (default: this machine)")
    run.add_argument(
        "--login", type=Path, metavar="FOLDER", help="a user's Secret as files: client properties and certificates"
    )
    run.add_argument(
        "--secrets", type=Path, metavar="FOLDER", help="a folder for each Secret of the sinks, with a file for each key"
    )
    run.add_argument("--kafka", action="append", default=[], metavar="NAME=VALUE", help="Kafka client property")
    run.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Spark configuration property; overrides spec.spark.conf",
    )
    run.add_argument(
        "--start-when", type=Path, metavar="FILE", help="start Spark at once, but the pipeline when this file exists"
    )
    run.add_argument("--http", metavar="HOST:PORT", help="address that serves /livez, /readyz, /status and /metrics")
    run.add_argument(
        "--keep-serving", action="store_true", help="serve --http after the pipeline has finished, until stopped"
    )
    run.add_argument("--termination-message", type=Path, metavar="FILE", help="file to write the error to")
    test = commands.add_parser("test", help="run a pipeline on the test cases beside it and compare the rows")
    test.add_argument(
        "--cases",
        type=Path,
        metavar="FOLDER",
        help="test cases (default: beside the pipeline's file, with .test for .yaml)",
    )
    for command in (validate, run, test):
        command.add_argument(
            "--registry",
            default=os.environ.get("OTTLA_REGISTRY", ""),
            metavar="URL",
            help="schema registry, for avro, protobuf and schemaRef (default: $OTTLA_REGISTRY)",
        )
        command.add_argument(
            "--pipeline", type=Path, required=True, metavar="FILE", help="YAML or JSON file with a Pipeline resource"
        )
        command.add_argument("--name", help="name of the Pipeline, if the file has several")
    download = commands.add_parser("jars", help="download the jars of Spark's Kafka connector and of sinks")
    names = tuple(jars.EXTRA_JARS)
    download.add_argument("--sinks", nargs="*", choices=names, default=(), metavar="SINK", help=", ".join(names))
    download.add_argument("--into", type=Path, metavar="FOLDER", help="default: $OTTLA_SPARK_JARS or the user's cache")
    return parser


def _run(pipeline: PipelineDefinition, options: argparse.Namespace) -> int:
    location = options.checkpoint or (pipeline.spec.checkpoint.path if pipeline.spec.checkpoint else None)
    if location is None:
        raise PipelineError("the checkpoint location is missing: set --checkpoint or spec.checkpoint.path")
    if "://" not in location:
        location = str(Path(location).absolute() if options.checkpoint else (pipeline.folder / location).absolute())
    log = options.log or (options.progress.with_suffix(".spark.log") if options.progress else None)
    environment = RuntimeEnvironment(
        bootstrap=options.bootstrap,
        checkpoint=location,
        progress=options.progress,
        log=log.absolute() if log else None,
        master=options.master,
        kafka={**_read_login(options.login), **_parse_properties(options.kafka)},
        conf=_parse_properties(options.conf),
        registry=options.registry,
        secrets=options.secrets,
        report=RunReport(options.report) if options.report else None,
        start_file=options.start_when,
    )
    stop_requested = _stop_on_signals()
    with serve_progress(_parse_address(options.http), environment.snapshot):
        with _redirect_stderr(log):
            display = CatchUpDisplay(_stderr) if options.show_progress else None
            run_pipeline(pipeline, replace(environment, display=display), stop_requested)
        if options.keep_serving:
            stop_requested.wait()
    return 0


def _parse_properties(pairs: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def _read_login(folder: Path | None) -> dict[str, str]:
    """Client properties of the user whose Secret is in a folder; none without a folder. Raises
    PipelineError.
    """
    if folder is None:
        return {}
    try:
        has_certificate = (folder / CERTIFICATE_KEY).exists()
        names = ("security.protocol",) if has_certificate else LOGIN_PROPERTIES
        found = {name: (folder / name).read_text().strip() for name in names}
        if has_certificate:
            found["ssl.keystore.type"] = "PEM"
            found["ssl.keystore.certificate.chain"] = (folder / CERTIFICATE).read_text()
            found["ssl.keystore.key"] = (folder / CERTIFICATE_KEY).read_text()
        authorities = folder / AUTHORITIES
        if authorities.exists():
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities.read_text()}
    except OSError as error:
        raise PipelineError(f"--login: cannot read {error.filename}: {error.strerror}") from error
    return found


def _parse_address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise PipelineError(f"--http: {text!r} is not HOST:PORT")
    return host, int(port)


def _stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop_requested.set())
    return stop_requested


def _validate(pipeline: PipelineDefinition, options: argparse.Namespace) -> int:
    if not options.shape:
        require_pyspark()
        # Only commands that run Spark import what needs PySpark.
        from ottla_spark.streaming.cases import plan_pipeline

        with _redirect_stderr(None):
            plan_pipeline(resolve_schemas(pipeline, SchemaRegistry(options.registry)))
    _report(f"pipeline {pipeline.name}: valid")
    return 0


def _test(pipeline: PipelineDefinition, options: argparse.Namespace) -> int:
    require_pyspark()
    # Only commands that run Spark import what needs PySpark.
    from ottla_spark.streaming.cases import run_cases

    with _redirect_stderr(None):
        resolved = resolve_schemas(pipeline, SchemaRegistry(options.registry))
        failed = run_cases(resolved, options.cases or options.pipeline.with_suffix(".test"), report=_report)
    return 1 if failed else 0


_stderr = sys.stderr
"""Where messages to the person are written, also while `_redirect_stderr` has the JVM's output go
elsewhere."""


def _report_error(message: str, options: argparse.Namespace) -> None:
    """Also writes the message to --termination-message, which Kubernetes shows in the container's
    status.
    """
    _report(message)
    if getattr(options, "termination_message", None) is not None:
        options.termination_message.write_text(f"{message}\n")


def _report(message: str) -> None:
    print(message, file=_stderr, flush=True)


@contextmanager
def _redirect_stderr(log: Path | None) -> Iterator[None]:
    """Redirects standard error, which the JVM writes to, to a log; if `log` is None, the output is
    dropped. `_report` still writes to the original.
    """
    global _stderr
    sys.stderr.flush()
    original = os.dup(2)
    _stderr = os.fdopen(original, "w")
    target = os.open(log if log is not None else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)


if __name__ == "__main__":
    sys.exit(main())
