"""Brokers killed at the same moment that come back at other addresses under the same names, as pods do.

`python -m tests.e2e.new_addresses --rounds 200` does it again and again, to the same groups of librdkafka, kafka-python and
the Java client, and reports how long each group took to read on.
"""
