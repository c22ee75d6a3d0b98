"""All brokers are killed at the same moment and come back at other addresses under the same names,
as pods do.

`python -m tests.e2e.new_addresses --rounds 200` repeats this while groups of librdkafka and
kafka-python read, or, with `--groups java`, a group of the Java client. It reports how long each
group took until it read on. New groups begin every twenty rounds.
"""
