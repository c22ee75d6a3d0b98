"""Three brokers of Ottla beside three of Apache Kafka on one machine, in the same run: `python -m bench.cluster`.

`lines.py` says what is measured and what is required; `sessions.py` takes one side through it; `../acks.c` is the load. Replication
factor 3, min.insync.replicas 2, acks=all. As in `bench`, the sides never run at the same time.
"""
