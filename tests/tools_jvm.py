"""Apache Kafka's command-line tools, run one after another in one JVM.

A tool takes 0.5 s of processor time or more if a JVM is started for it, and a tenth of that in one
that has run others. `run_tool` calls the tool's `main`, as `java` does; its exit code is what it
passes to Kafka's `Exit`, and its output what it has printed until then. `check_tool` is for tools
that are to succeed.

Each process of pytest has one such JVM, for the classpath that was used last. It ends with that
process, because it watches its standard input.
"""

import atexit
import os
import subprocess
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final
from unittest.mock import patch

from py4j import java_gateway, protocol
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from tests.jars import SHORT_LIVED_JVM, class_archive_options, java_command
from tests.java_gateway import connect_callbacks

ENDS_WITHIN_S: Final = 90.0
ONCE_IN_A_JVM: Final = ("Console", "Performance", "Verifiable")
"""Programs with these words in their names read standard input or count in static fields. Each has
a JVM of its own.
"""


def run_tool(classpath: str, main: str, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Runs `main` of the class to its end, whatever its exit code. A tool has a JVM of its own if
    it gets `stdin`, if it is one of ONCE_IN_A_JVM, or if JAVA_TOOL_OPTIONS are set, which a JVM
    reads when it starts. Raises AssertionError, or TimeoutExpired from a JVM of its own, after
    ENDS_WITHIN_S.
    """
    if stdin or "JAVA_TOOL_OPTIONS" in os.environ or any(word in main for word in ONCE_IN_A_JVM):
        command = java_command(classpath, main, *arguments)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    global _jvm
    if _jvm is None or _jvm.classpath != classpath or not _jvm.is_running:
        if _jvm is not None:
            _jvm.close()
        _jvm = ToolsJvm(classpath)
    return _jvm.run(main, arguments)


def check_tool(classpath: str, main: str, *arguments: str) -> str:
    """The output of a tool. Raises AssertionError with what it has printed if its exit code is not
    0.
    """
    done = run_tool(classpath, main, *arguments)
    printed = f"{done.stdout}\n{done.stderr}"[-3000:]
    assert done.returncode == 0, f"{main} {' '.join(arguments)}: exit code {done.returncode}\n{printed}"
    return done.stdout


class ToolHasEnded(Exception):
    """Ends a tool that exits: `Exit` must not return to it."""


class ToolsJvm:
    """A JVM in which tools run one at a time."""

    def __init__(self, classpath: str) -> None:
        self.classpath = classpath
        self._ended: tuple[int, str, str] | None = None  # exit code, output and errors of a tool that has exited
        options = (*SHORT_LIVED_JVM, *class_archive_options(classpath))
        jars = f"{classpath}:{find_jar_path()}"
        server = java_command(jars, "py4j.GatewayServer", "--die-on-broken-pipe", "0", jvm=options)
        self._process = subprocess.Popen(
            server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, read_timeout=ENDS_WITHIN_S),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        connect_callbacks(self._gateway)
        java: Any = self._gateway.jvm
        java.org.apache.kafka.common.utils.Exit.setExitProcedure(self)
        java.org.apache.kafka.common.utils.Exit.setHaltProcedure(self)
        # Scala's console keeps the streams that it finds first, so all tools have these.
        self._stdout, self._stderr = (java.java.io.ByteArrayOutputStream() for _ in range(2))
        java.java.lang.System.setOut(java.java.io.PrintStream(self._stdout, True, "UTF-8"))
        java.java.lang.System.setErr(java.java.io.PrintStream(self._stderr, True, "UTF-8"))

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def run(self, main: str, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Runs a tool to its end. Raises AssertionError after ENDS_WITHIN_S, and ends the JVM."""
        self._ended = None
        self._stdout.reset()
        self._stderr.reset()
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
        for at, argument in enumerate(arguments):
            array[at] = argument
        try:
            with patch.object(java_gateway, "get_return_value", protocol.get_return_value):  # PySpark replaces it
                reduce(getattr, main.split("."), self._gateway.jvm).main(array)
            code, stdout, stderr = self._ended or (0, *self._output())
        except Py4JJavaError as error:
            # Without an exit, `java` prints the exception.
            code, stdout, stderr = self._ended or (1, self._output()[0], f"{self._output()[1]}{error}")
        except Py4JNetworkError as error:
            self.close()
            raise AssertionError(f"{main} {' '.join(arguments)}: not over after {ENDS_WITHIN_S} s") from error
        return subprocess.CompletedProcess([main, *arguments], code, stdout, stderr)

    def _output(self) -> tuple[str, str]:
        return str(self._stdout.toString("UTF-8")), str(self._stderr.toString("UTF-8"))

    # The procedure of `Exit`. A tool may catch what ends it, and exit again.

    class Java:
        implements = ("org.apache.kafka.common.utils.Exit$Procedure",)

    def execute(self, status: int, message: str | None) -> None:
        """Called by Java in place of `System.exit`."""
        if self._ended is None:
            self._ended = (status, *self._output())
        raise ToolHasEnded(status)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._gateway.shutdown()


_jvm: ToolsJvm | None = None


@atexit.register
def _close_jvm() -> None:
    if _jvm is not None:
        _jvm.close()
