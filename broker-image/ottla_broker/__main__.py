"""`python -m ottla_broker [--config FILE]… [--set key=value]…`: one broker, until SIGTERM or SIGINT.

Exit codes: 0 after a clean stop, 2 when it cannot start, with one line that says why.
"""

import argparse
import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Sequence

import uvloop

from ottla_broker.broker import Broker
from ottla_broker.config import Config, ConfigError
from ottla_broker.log.log_dir import LogDirError
from ottla_broker.metadata.register import Register
from ottla_broker.metadata.register.file import FileRegister
from ottla_broker.runtime import Runtime
from ottla_broker.server import Server
from ottla_broker.wire.errors import KafkaError
