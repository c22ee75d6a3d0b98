"""Entry point of `ottla`. `ottla broker` is handed to `python -m ottla_broker`, without the imports
of other commands.

The program is also installed as `kubectl-ottla`, which kubectl runs for `kubectl ottla`
(https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).

Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 not found, 4 unreachable, 130
interrupted.
"""

import os
import sys
from pathlib import Path
from typing import Final

KUBECTL_PLUGIN: Final = "kubectl-ottla"


def main() -> None:
    # If hypothesis is installed, kio imports it for its users' tests: a second and 12 MB that no
    # command needs.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    arguments = sys.argv[1:]
    if arguments[:1] == ["broker"]:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "ottla_broker", *arguments[1:]])
    try:
        from ottla_operator.cli.app import run  # an interrupt during the imports is silent, too

        is_plugin = Path(sys.argv[0]).name == KUBECTL_PLUGIN
        run(arguments, "kubectl ottla" if is_plugin else "ottla")
    except KeyboardInterrupt:
        sys.exit(130)
