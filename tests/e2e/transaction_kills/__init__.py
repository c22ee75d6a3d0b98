"""Consume-transform-produce loads on three brokers, one of which is killed again and again."""
