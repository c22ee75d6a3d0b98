"""Prints the flights of the airport Newark (EWR)."""

from site_flights import main

main("EWR")
