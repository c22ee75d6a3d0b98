"""Consume-transform-produce loads on three brokers, of which one after the other is killed."""
