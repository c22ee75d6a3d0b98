"""Deciding: pure functions from what is wished and what is seen to what is to be done. No I/O
here.
"""
