"""Types of groups, as Kafka names them in responses and metrics. Except for classic groups they are
the names of the protocols, too.
"""

from typing import Final

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
STREAMS: Final = "streams"
SHARE: Final = "share"
