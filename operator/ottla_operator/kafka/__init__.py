"""Kafka clients of the operator and the command line: admin requests, a producer and a consumer.

They work with any cluster that speaks Kafka's protocol. Functions are named after the methods of
Kafka's Admin client where it has one. Errors of brokers are KafkaError; brokers that cannot be
reached are Unreachable.
"""
