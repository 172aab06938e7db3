"""docs/differences.md: a setting that brings RocketMQ's way back exists and takes that value.

And each finding of the review of security that RocketMQ shares has the key that is its.
"""

import re
from pathlib import Path

import pytest

from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError

TEXT = (Path(__file__).parents[4] / "docs" / "differences.md").read_text()
HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)
STRICTER = {"aclEnable=true", "haSecretRequired=true"}
"""These want more than RocketMQ does, and a file or a secret for it."""
SETTINGS = sorted(set(re.findall(r"`([a-z]\w*[A-Z]\w*=[^`\s]+)`", TEXT)) - STRICTER)
KEYS = {
    "C2 connections": ["maxConnections", "maxConnectionsPerIp"],
    "C3 members": ["dLegerPeerHosts"],
    "H1 permissions": ["aclStrict"],
    "H2 replicas": ["haAllowedSlaves", "haSecretRequired", "tls.ha.allowedNames", "haMaxSlaves"],
    "H3 headers": ["maxHeaderSize"],
    "H4 memory": ["maxUnfinishedBytes", "maxUnfinishedBytesPerIp", "frameTimeoutSeconds"],
    "H5 offsets": ["checkCommittedOffsets", "maxTopics", "maxGroups"],
    "H6 name server": ["namesrvAllowedBrokers", "maxTopicsOfBroker", "maxRegistrationBytes"],
    "H7 long turns": ["turnMillis", "turnMillisPerIp", "maxMessagesPerBatch", "maxQueuesPerLock"],
    "M1 signatures": ["aclRequiresTls", "aclRequiresSignedTime"],
    "M2 floods of the log": ["offsetMovedEventInterval"],
    "M3 wrong masters": ["haFirstOffsetMax", "haTrustedMasters"],
    "L1 files": ["privateFiles"],
}


def is_taken(setting: str) -> bool:
    """Whether a broker or a name server reads it, and says nothing against it."""
    for load in (load_broker, load_namesrv):
        key = setting.partition("=")[0]
        try:
            configuration = load(setting, HERE)
            said = configuration.notices
        except ConfigurationError:
            continue
        if not any(key in notice.text and "unknown" in notice.text for notice in said):
            return True
    return False


def test_there_are_settings_to_look_at() -> None:
    assert len(SETTINGS) > 15
    assert not is_taken("aclStrikt=false")
    assert not is_taken("aclStrict=perhaps")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_is_named_is_one(setting: str) -> None:
    assert is_taken(setting)


@pytest.mark.parametrize("finding", KEYS)
def test_a_finding_that_rocketmq_shares_is_listed_with_its_keys(finding: str) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    for key in KEYS[finding]:
        assert any(f"`{key}" in row for row in rows), key
