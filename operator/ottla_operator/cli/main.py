"""Entry point of `ottla`. `ottla broker` is handed to `python -m ottla_broker`, without the imports
of other commands.

Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 not found, 4 unreachable, 130
interrupted.
"""

import os
import sys


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

        run(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
