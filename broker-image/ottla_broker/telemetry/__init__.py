"""What others report of themselves, in the broker's memory: clients' own metrics (KIP-714), and
the states of pipelines and rolling restarts.
"""
