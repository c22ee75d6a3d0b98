"""What the operator and the command ask of brokers, over Kafka's protocol: any cluster that speaks it will do.

Each file is one matter: it makes the protocol's messages, sends each to the broker that it is for, and gives back plain facts. A refusal is a
`KafkaError` with a sentence; brokers that cannot be reached are `Unreachable`.
"""
