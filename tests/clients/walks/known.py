"""Where we mean to differ, and what Kafka leaves to chance."""

import re
from typing import Final, NamedTuple

from tests.clients.walks.steps import Step


class Known(NamedTuple):
    """Differences of an API in the places (`path Kafka …, we …`) that the pattern matches from the start; `asked`: what is found in the step."""

    api: str
    where: str
    because: str
    asked: str = ""

    def fits(self, step: Step, line: str) -> bool:
        return bool(
            re.fullmatch(self.api, step.api) and re.match(self.where, line) and re.search(self.asked, str(step))
        )


KNOWN: Final = (
    Known("create_topics", r".*\[min.insync.replicas\]", "Kafka's format sets it for the cluster, with ELR"),
    Known("produce", r".*\.record_errors", "we do not look into batches, so we cannot tell"),
    Known(
        "produce",
        r".*error_code Kafka 'corrupt_message', we 'unknown_topic_or_partition'",
        "Kafka looks at the bytes first",
    ),
    Known(
        "produce",
        r".*error_code Kafka 'invalid_record', we 'invalid_timestamp'",
        "records without key and out of time: Kafka finds whichever the first record has, we look at the header first",
    ),
    Known(
        "list_offsets",
        r".*\.(timestamp|offset|leader_epoch) Kafka -1, we [0-9]",
        "a time whose first segment has deleted records only: Kafka looks no further",
        asked="'timestamp': (0|17)",
    ),
    Known(
        "sync_group",
        r" Kafka 'no answer', we \{'error_code': 'unknown_member_id'",
        "who is made to leave while it waits for its assignment: Kafka never answers",
    ),
    Known(
        "join_group",
        r"\.(error_code Kafka 'unknown_server_error', we '(unknown_member_id|fenced_instance_id)'|member_id Kafka '', we '<)",
        "an instance with an id that was given to no instance: Kafka fails with an exception of its own; we say what is wrong",
    ),
    Known(
        "fetch", r".*\.records\[[1-9][0-9]*\] Kafka 'nothing', we", "Kafka's answer ends with a segment; ours goes on"
    ),
    Known(
        "fetch",
        r".*\.aborted_transactions Kafka None, we \[\]",
        "of a partition that there was no room for; both mean none",
    ),
    Known("fetch", r".*\.aborted_transactions Kafka \[\], we None", "of a partition with an error; both mean none"),
)
# A walk ends there without a verdict.
CHANCE: Final = (
    r"join_group \.(leader|members)",  # when a leader left, Kafka takes any of the others
    r"join_group \.protocol_name Kafka '(range|sticky)', we '(range|sticky)'",  # votes that tie: Kafka goes by hashes
)
