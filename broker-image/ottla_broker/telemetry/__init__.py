"""Clients' own metrics (KIP-714): which clients push which metrics, and what they have pushed."""
