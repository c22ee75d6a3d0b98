"""Newark's flights."""

from site_flights import main

main("EWR")
