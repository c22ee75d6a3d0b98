"""Rounds of faults against real brokers under real load: `python -m tests.e2e.rounds 50 --seed 1`.

Each round creates a topic, loads it with an idempotent and a plain producer and with two consumers
of a group, injects faults, removes them, waits until the cluster is healthy, and checks that no
acknowledged record is lost or, with idempotence, duplicated. Brokers have network namespaces and
small disks of their own, so that cut links and full disks are real. Each round has a log under
`build/rounds/`, with the output of each broker. After a failed round it also has librdkafka's log
of the idempotent producer and the batches of each replica.

The same seed gives the same faults at the same times. Processes may still behave differently.
"""
