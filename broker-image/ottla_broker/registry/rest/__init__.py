"""HTTP of the schema registry: Confluent's REST interface."""
