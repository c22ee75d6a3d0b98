"""Brokers killed at the same moment that come back at other addresses under the same names, as pods
do.

`python -m tests.e2e.new_addresses --rounds 200` does it again and again, to groups of librdkafka,
kafka-python or, with `--groups java`, the Java client. It reports how long each group took to read
on. New groups begin every twenty rounds.
"""
