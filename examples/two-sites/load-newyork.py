"""Prints the flights of the airports Kennedy (JFK) and LaGuardia (LGA)."""

from site_flights import main

main("JFK", "LGA")
