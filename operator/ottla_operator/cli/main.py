"""Where `ottla` begins. It imports only what the command at hand needs: a broker is started without this package's libraries at all.

Exit codes: 0 done · 1 failed · 2 wrong usage or bad input · 3 not found · 4 not reachable · 130 interrupted.
"""

import os
import sys

# command → module of this package that defines it
COMMANDS = {
    "up": "up",
    "topics": "topics",
    "groups": "groups",
    "produce": "produce",
    "consume": "consume",
    "cluster": "cluster",
    "mirror": "mirror",
    "pipeline": "pipeline",
    "broker": "broker",
    "operator": "operator",
}


def main() -> None:
    # Where hypothesis is installed, kio imports it, for its users' tests: a second and 12 MB that no command needs.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    arguments = sys.argv[1:]
    if arguments[:1] == ["broker"] and "--help" not in arguments:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "ottla_broker", *arguments[1:]])
    try:
        from ottla_operator.cli.app import run

        run(arguments)
    except KeyboardInterrupt:  # most of the first half second goes by with imports
        sys.exit(130)
