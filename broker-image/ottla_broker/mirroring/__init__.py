"""Links to other clusters: copies of their topics, filled by the brokers that lead them (docs/mirroring.md)."""
