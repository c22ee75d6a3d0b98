"""`python -m ottla_broker.registry.worker`: the process that parses and compares a broker's schemas
and encodes values by them.

Requests and responses are msgpack, each after its length in 4 bytes, on standard input and output.
The process may use a bounded amount of memory and yields to others. The broker ends it when a
request takes too long.
"""

import os
import resource
import sys
from typing import BinaryIO, Final

import msgspec

from ottla_broker.registry.languages.dispatch import find_incompatibilities, format_schema, print_schema
from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.languages.value_mismatch import ValueMismatch
from ottla_broker.registry.worker_messages import (
    LENGTH,
    CompareRequest,
    EncodeRequest,
    FormatRequest,
    PrintRequest,
    WorkerRequest,
    WorkerResponse,
)

MAX_MEMORY_BYTES: Final = 256 << 20
"""Limit of the worker's data segment. A schema of 1 MB needs some 50 MB; a broker's container often
has a few hundred MB."""
NICENESS: Final = 5
"""So that the broker's own work comes first where cores are short."""
MAX_RECURSION: Final = 4000


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    sys.setrecursionlimit(MAX_RECURSION)
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Responds to requests until the broker closes its end of the pipe."""
    decode = msgspec.msgpack.Decoder(WorkerRequest).decode
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        response = msgspec.msgpack.encode(respond(decode(requests.read(*LENGTH.unpack(head)))))
        responses.write(LENGTH.pack(len(response)) + response)
        responses.flush()


def respond(request: WorkerRequest) -> WorkerResponse:
    try:
        match request:
            case PrintRequest():
                return WorkerResponse(print_schema(request.source, normalize=request.normalize))
            case CompareRequest():
                return WorkerResponse(incompatibilities=find_incompatibilities(request.reader, request.writer))
            case FormatRequest():
                return WorkerResponse(format_schema(request.source, request.form))
            case EncodeRequest():
                from ottla_broker.registry.languages.value_encoding import encode_value  # few need its libraries

                return WorkerResponse(data=encode_value(request.source, request.text, request.message))
    except ValueMismatch as reason:
        return WorkerResponse(mismatch=str(reason))
    except SchemaError as reason:
        return WorkerResponse(error=str(reason))
    except RecursionError:
        return WorkerResponse(error="it is nested too deeply")
    except MemoryError:
        return WorkerResponse(error="it needs too much memory")


if __name__ == "__main__":
    main()
