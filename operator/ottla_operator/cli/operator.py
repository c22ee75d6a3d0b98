"""`ottla operator`."""

import asyncio
import logging
import signal
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla_broker.log_format import configure_logging
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import new_app

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

app = new_app()


class LogFormat(StrEnum):
    text = "text"
    json = "json"


@app.command()
def operator(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace", "-n", envvar="OTTLA_NAMESPACES", help="Namespace to watch. Repeatable. Default: all."
        ),
    ] = None,
    image: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_BROKER_IMAGE", help="Image of brokers, without a tag: a Cluster's version is the tag."
        ),
    ] = "ottla-broker",
    version: Annotated[
        str | None,
        typer.Option(
            envvar="OTTLA_BROKER_VERSION",
            help="Version of Clusters that set neither version nor image. Default: the operator's version.",
        ),
    ] = None,
    spark_image: Annotated[
        str, typer.Option(envvar="OTTLA_SPARK_IMAGE", help="Image of Pipelines that do not set spark.image.")
    ] = "ottla-spark",
    pull_policy: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_SPARK_PULL_POLICY", help="Pull policy of the pipelines' image: Always, IfNotPresent or Never."
        ),
    ] = "IfNotPresent",
    broker_pull_policy: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_BROKER_PULL_POLICY",
            help="Pull policy of the brokers' image: Always, IfNotPresent or Never. Default: Kubernetes' default.",
        ),
    ] = "",
    pull_secret: Annotated[
        list[str] | None,
        typer.Option(
            envvar="OTTLA_PULL_SECRETS",
            help="Secret to pull the images of brokers and pipelines with, in each of their namespaces. Repeatable.",
        ),
    ] = None,
    platform_assigns_uid: Annotated[
        bool,
        typer.Option(
            envvar="OTTLA_PLATFORM_ASSIGNS_UID",
            help="Leave user and group ids of pods to the platform, as OpenShift requires.",
        ),
    ] = False,
    home: Annotated[
        str | None,
        typer.Option(
            envvar="POD_NAMESPACE",
            help="Namespace of the Lease that elects the active operator. Default: the pod's namespace.",
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_OPERATOR_LEASE",
            help="Name of the Lease. Replicas of an operator share one; an operator that watches other namespaces "
            "needs one of its own.",
        ),
    ] = "ottla-operator",
    http: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address that serves /livez, /readyz and /metrics. Empty: none."),
    ] = ":8080",
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "info",
    log_format: Annotated[
        LogFormat,
        typer.Option(
            help="Format of log lines: text, or json for one JSON object per line, with the reconciled resource in a "
            "field."
        ),
    ] = LogFormat.text,
) -> None:
    """Run the Kubernetes operator, which reconciles the resources of ottla.dev."""
    # kopf is an optional dependency: `--help` works without it.
    from ottla_operator.kube.operator import LoginError, Operator, OperatorOptions
    from ottla_operator.plan.objects.broker_pod import BrokerImages
    from ottla_operator.plan.objects.pod_defaults import PodDefaults
    from ottla_operator.plan.pipeline.pods import PipelineImage

    configure_logging(log_format.value, log_level)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    defaults = PodDefaults(tuple(_split(pull_secret)), platform_assigns_uid)
    options = OperatorOptions(
        namespaces=_split(namespace),
        lease_namespace=home or _pod_namespace(),
        lease_name=lease,
        images=BrokerImages(image, version or metadata.version("ottla"), broker_pull_policy, defaults),
        pipeline_image=PipelineImage(spark_image, pull_policy, defaults),
        http_listener=_parse_address(http),
    )

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Operator(options).run(stop)

    try:
        asyncio.run(work())
    except LoginError as error:
        raise CommandError(ExitCode.unreachable, str(error)) from error


def _split(values: list[str] | None) -> list[str]:
    """The values of a repeatable option. Its environment variable has them in one text, separated
    by commas.
    """
    return [part for it in values or [] for part in it.split(",") if part]


def _pod_namespace() -> str:
    """The namespace of the pod that this runs in; `default` outside of one."""
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "default"


def _parse_address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise typer.BadParameter(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
