"""Ottla beside Apache Kafka on the same machine, in the same run: `python -m bench`.

`lines.py` says what is measured and what is required; `session.py` takes one side through it; `load.c` is the load.
The two sides never run at the same time, and take turns, so that whatever else the machine does falls on both.
"""
