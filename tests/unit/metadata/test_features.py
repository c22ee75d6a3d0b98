"""Finalized levels of features."""

import pytest

from ottla_broker.metadata.features import TRANSACTION_VERSION, FeatureUpdate, UpgradeType, plan_feature_updates
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import FeatureLevelRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

NAME = TRANSACTION_VERSION.name


def test_cluster_without_a_record_has_the_default_level() -> None:
    image = MetadataImage()
    assert image.feature_level(TRANSACTION_VERSION) == 2
    image.apply_records([(0, FeatureLevelRecord(NAME, 1))])
    assert image.feature_level(TRANSACTION_VERSION) == 1
    copy = MetadataImage()
    copy.apply_records(enumerate(image.to_records(1)))
    assert copy.feature_level(TRANSACTION_VERSION) == 1


def test_level_is_lowered_and_raised_as_the_request_says() -> None:
    lower = FeatureUpdate(NAME, 1, UpgradeType.safe_downgrade)
    assert plan_feature_updates({}, [lower]) == [FeatureLevelRecord(NAME, 1)]
    assert plan_feature_updates({NAME: 1}, [lower]) == []
    assert plan_feature_updates({NAME: 1}, [FeatureUpdate(NAME, 2, UpgradeType.upgrade)]) == [
        FeatureLevelRecord(NAME, 2)
    ]


@pytest.mark.parametrize(
    "update",
    [
        FeatureUpdate(NAME, 3, UpgradeType.upgrade),
        FeatureUpdate(NAME, -1, UpgradeType.unsafe_downgrade),
        FeatureUpdate(NAME, 1, UpgradeType.upgrade),
        FeatureUpdate("metadata.version", 26, UpgradeType.unsafe_downgrade),
        FeatureUpdate("metadata.version", 28, UpgradeType.upgrade),
        FeatureUpdate("kraft.version", 0, UpgradeType.safe_downgrade),
        FeatureUpdate("kraft.version", 0, UpgradeType.unsafe_downgrade),
        FeatureUpdate("unknown.version", 1, UpgradeType.upgrade),
    ],
    ids=str,
)
def test_invalid_update_is_refused_with_all_others(update: FeatureUpdate) -> None:
    with pytest.raises(KafkaError) as refused:
        plan_feature_updates({}, [FeatureUpdate(NAME, 1, UpgradeType.safe_downgrade), update])
    assert refused.value.code is ErrorCode.invalid_update_version
    assert update.feature in str(refused.value)


def test_upgrade_by_a_downgrade_is_refused() -> None:
    with pytest.raises(KafkaError, match="higher than 1"):
        plan_feature_updates({NAME: 1}, [FeatureUpdate(NAME, 2, UpgradeType.unsafe_downgrade)])
