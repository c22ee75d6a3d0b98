"""Benchmarks of Ottla and Apache Kafka on the same machine in the same run: `python -m bench`.

`lines.py` says what is measured and required, `__main__.py` which module measures which lines of
one side. The clients are the programs in C, and programs of Apache Kafka in Java. The two sides
never run at the same time and take turns, so that other load on the machine affects both.
"""
