"""Benchmarks of mirroring one cluster to another, compared with MirrorMaker 2."""
