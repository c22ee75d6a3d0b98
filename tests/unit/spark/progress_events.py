"""A progress event of a Spark query."""

from __future__ import annotations

from typing import Any

EVENT: dict[str, Any] = {
    "name": "delays",
    "batchId": 7,
    "numInputRows": 60000,
    "inputRowsPerSecond": 1500.5,
    "processedRowsPerSecond": 20000.0,
    "durationMs": {"triggerExecution": 3012},
    "eventTime": {"watermark": "2013-10-27T22:05:00.000Z"},
    "sources": [
        {
            "startOffset": {"flights": {"0": 100, "1": 90}},
            "endOffset": {"flights": {"0": 200, "1": 190}},
            "latestOffset": {"flights": {"0": 250, "1": 190}},
        }
    ],
    "observedMetrics": {
        "counts": {"rows": 12},
        "undecoded_flights": {"dead": 2, "rejected:flights:undecoded": 2},
        "broken_departures": {"dead": 1, "rejected:departures:sane": 1, "rejected:departures:known": 0},
    },
}
