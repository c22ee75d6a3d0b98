"""Grafana dashboards of the chart, generated from compact declarations."""
