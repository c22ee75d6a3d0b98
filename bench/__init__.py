"""Benchmarks of Ottla and Apache Kafka on the same machine in the same run: `python -m bench`.

`lines.py` says what is measured and required, `one_broker.py` measures one side, `load.c` produces
and consumes. The two sides never run at the same time and take turns, so that other load on the
machine affects both.
"""
