"""Masters that a slave does not follow."""

from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.model.networks import Networks
from rmq_ha.server.broker.masters import TrustedMasters


def test_only_trusted_masters_are_followed() -> None:
    """None, as without any master, in the place of another one; each that is refused counts."""
    followed: list[str | None] = []
    masters = TrustedMasters(Networks("10.0.0.2, 10.1.0.0/16"))
    follow = masters.only_trusted(followed.append)
    for address in ("10.0.0.2:10912", "10.0.0.3:10912", "10.1.9.9:10912", None, "nonsense"):
        follow(address)
    assert followed == ["10.0.0.2:10912", None, "10.1.9.9:10912", None, None]
    assert masters.refused == 2


def test_without_a_list_all_are_trusted() -> None:
    masters = TrustedMasters(Networks(""))
    assert masters.trusts("10.0.0.3:10912")
    assert masters.refused == 0


def test_a_stranger_is_told_once_however_often_he_is_named() -> None:
    """And again after another one: somebody changes the registration to and fro."""
    masters = TrustedMasters(Networks("10.0.0.2"))
    with capturedLogs() as events:
        for address in ("10.0.0.3:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.4:1", "10.0.0.3:1"):
            assert not masters.trusts(address)
    told = [formatEvent(event).partition(",")[0].rpartition(" ")[2] for event in events]
    assert told == ["10.0.0.3:1", "10.0.0.4:1", "10.0.0.3:1"]
    assert masters.refused == 5
