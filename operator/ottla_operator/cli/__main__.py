"""`python -m ottla_operator.cli` is `ottla`."""

from ottla_operator.cli.main import main

main()
