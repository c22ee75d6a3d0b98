"""Random walks: the same random requests in the same order to Apache Kafka and to Ottla, whose
responses are compared.

`python -m tests.clients.walks --seeds 200 --first 1` starts both brokers and runs walks; `--steps`
and `--theme` choose other walks.
"""
