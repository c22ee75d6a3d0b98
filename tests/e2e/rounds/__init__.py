"""Rounds of faults against real brokers under real load: `python -m tests.e2e.rounds 50 --seed 1`.

Every round makes a topic, loads it with an idempotent and a plain producer and with two consumers of a group, does something
bad to the cluster, mends it, waits until the cluster is whole, and checks that nothing acknowledged is lost or, with
idempotence, doubled. Brokers live in network namespaces and on small disks of their own, so that cuts and full disks are real. What
happened is kept under `build/rounds/`, one file a round; a failed one is followed by what each broker wrote.

The same seed gives the same faults at the same times; processes are free to answer differently.
"""
