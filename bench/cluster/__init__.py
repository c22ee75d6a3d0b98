"""Benchmarks of three Ottla brokers and three Apache Kafka brokers on one machine: `python -m
bench.cluster`.

`lines.py` says what is measured and required, `sessions.py` measures one side, `../acks.c` and
`../lag.c` are the load. Replication factor 3, min.insync.replicas 2, acks=all. As in `bench`, the
sides never run at the same time.
"""
