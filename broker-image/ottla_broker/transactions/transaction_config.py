"""The broker's settings for transactions."""

import msgspec

from ottla_broker.config import (
    TRANSACTION_ABORT_TIMED_OUT_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS,
    TRANSACTION_TWO_PHASE_COMMIT_ENABLE,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    Config,
)


class TransactionConfig(msgspec.Struct, frozen=True):
    """Defaults are Kafka 4.1's. `write_timeout_ms`: how long a write of the coordinator waits for
    its replicas; no setting changes it."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    write_timeout_ms: int = 5_000
    two_phase_commit_enable: bool = False

    @classmethod
    def from_config(cls, config: Config) -> "TransactionConfig":
        return cls(
            transaction_max_timeout_ms=config(TRANSACTION_MAX_TIMEOUT_MS),
            transactional_id_expiration_ms=config(TRANSACTIONAL_ID_EXPIRATION_MS),
            abort_timed_out_interval_ms=config(TRANSACTION_ABORT_TIMED_OUT_CLEANUP_INTERVAL_MS),
            remove_expired_interval_ms=config(TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS),
            two_phase_commit_enable=config(TRANSACTION_TWO_PHASE_COMMIT_ENABLE),
        )
