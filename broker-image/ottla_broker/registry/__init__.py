"""The schema registry: Confluent's REST interface over the compacted topic `_schemas`.

Pure: `schema`, `subject_names`, `record_format`, `state`, `registrations`, `deletions`, `modes`,
`settings`, `compatibility`, `inherited_metadata` and `languages`. The topic is read and written by
`schemas_topic`, HTTP is served by `rest`. `lazy_registry` listens, and imports the rest when the
registry is used first. A broker without `schema.registry.listener` imports only the types that its
console names.
"""
