"""The languages of schemas: Avro, JSON Schema and Protobuf.

They run in a worker process (`registry.worker`), because a large or hostile schema takes time and
memory that the broker must not spend.
"""
