"""The same random walk through Apache Kafka and through Ottla: the same requests in the same order, and the same answers.

`python -m tests.clients.walks --seeds 200 --first 1` starts both brokers and walks; `--steps` and `--theme` choose
other walks.
"""
