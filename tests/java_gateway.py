"""A JVM whose objects Python uses (py4j), so that no Java is compiled."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

from tests.jars import QUIET, SHORT_LIVED_JVM, java_program


@contextmanager
def start_jvm(
    classpath: str,
    options: Sequence[str] = (*SHORT_LIVED_JVM, *QUIET),
    callbacks: CallbackServerParameters | None = None,
) -> Iterator[tuple[JavaGateway, "subprocess.Popen[bytes]"]]:
    """`callbacks`: for a JVM that calls objects of Python."""
    port, process = launch_gateway(
        classpath=classpath, javaopts=[*options], java_path=java_program(), die_on_exit=True, return_proc=True
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True), callback_server_parameters=callbacks
    )
    try:
        if callbacks is not None:
            connect_callbacks(gateway)
        yield gateway, process
    finally:
        gateway.shutdown()
        process.kill()  # threads of its own would keep it running
        process.wait()


def connect_callbacks(gateway: JavaGateway) -> None:
    """Tells the JVM which port the gateway's callback server has."""
    java_side = gateway.java_gateway_server
    port = gateway.get_callback_server().get_listening_port()
    java_side.resetCallbackClient(java_side.getCallbackClient().getAddress(), port)
