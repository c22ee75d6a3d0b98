"""What a checkpoint fixes, and what becomes of those who change it."""

from __future__ import annotations

import pytest

from ottla_spark.checkpoint import Facts, check_topics, settle
from ottla_spark.session import ROCKSDB, SHUFFLE_PARTITIONS, STATE_STORE
from ottla_spark.trouble import Trouble

CONF = {STATE_STORE: ROCKSDB}


def test_a_new_checkpoint_takes_what_is_set_or_two_for_each_core() -> None:
    assert settle(None, {"t": "id"}, CONF, cores=4) == Facts({"t": "id"}, ROCKSDB, 8)
    assert settle(None, {}, CONF, cores=500).shuffle_partitions == 200
    assert settle(None, {}, {**CONF, SHUFFLE_PARTITIONS: "3"}, cores=4).shuffle_partitions == 3


def test_an_old_one_keeps_its_partitions_whatever_the_machine() -> None:
    kept = Facts({"t": "id"}, ROCKSDB, 8)
    assert settle(kept, {"t": "id", "u": "new"}, CONF, cores=64) == Facts({"t": "id", "u": "new"}, ROCKSDB, 8)


def test_another_number_of_partitions_is_an_error_with_the_remedy() -> None:
    with pytest.raises(Trouble, match=r"begun with spark.sql.shuffle.partitions=8.*now says 4.*set it back"):
        settle(Facts({}, ROCKSDB, 8), {}, {**CONF, SHUFFLE_PARTITIONS: "4"}, cores=1)


def test_another_state_store_is_an_error() -> None:
    with pytest.raises(Trouble, match=r"cannot change"):
        settle(Facts({}, "other", 8), {}, CONF, cores=1)


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    check_topics({"t": "a"}, {"t": "a", "new": "b"})
    with pytest.raises(Trouble, match=r"the topic t was deleted and made anew"):
        check_topics({"t": "a"}, {"t": "b"})
