"""`python -m ottla_broker [--config FILE]… [--set key=value]…`: one broker, until SIGTERM or SIGINT.

Exit codes: 0 after a clean stop, 2 when it cannot start, with one line that says why.
"""
