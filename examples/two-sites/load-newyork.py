"""Kennedy's and LaGuardia's flights."""

from site_flights import main

main("JFK", "LGA")
