"""Names in dLegerPeers, looked up when somebody may have moved."""

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_peers
from rmq_ha.base.model.networks import Networks
from rmq_ha.server.dledger.lookups import Lookups
from rmq_ha.server.dledger.members import Members


class Rig:
    """
    Two members are given by name.

    :ivar asked: names that were looked up, with what their answers are waited for by.
    """

    def __init__(self) -> None:
        peers = parse_peers("n0-a.example:1;n1-10.0.0.2:1;n2-b.example:1")
        settings = DLedgerSettings("g", "n1", peers)
        self.members = Members(settings, Networks(), Networks())
        self.clock = Clock()
        self.asked: list[tuple[str, Deferred[list[str]]]] = []
        host: Any = SimpleNamespace(clock=self.clock, network=self)
        self.lookups = Lookups(host, self.members)

    def look_up(self, name: str) -> "Deferred[list[str]]":
        self.asked.append((name, Deferred()))
        return self.asked[-1][1]

    def names(self) -> list[str]:
        return [name for name, _ in self.asked]

    def doubt(self, peer: str) -> list[str]:
        """What is looked up when a refusal was about this member."""
        before = len(self.asked)
        self.members.doubtful.add(peer)
        self.lookups.look_up_doubtful()
        assert self.members.doubtful == set()
        return self.names()[before:]


def test_all_names_are_looked_up_at_the_start() -> None:
    rig = Rig()
    rig.lookups.start()
    assert rig.names() == ["a.example", "b.example"]
    for _, later in rig.asked:
        later.callback(["10.0.0.7"])
    assert rig.members._places["n0"] == rig.members._places["n2"] == {"10.0.0.7"}


def test_strangers_cannot_make_it_ask_more_often_nor_twice_at_a_time() -> None:
    rig = Rig()
    assert rig.doubt("n0") == ["a.example"]
    rig.clock.advance(5)
    assert rig.doubt("n0") == []
    assert rig.doubt("n2") == ["b.example"]
    rig.asked[0][1].callback([])
    assert rig.doubt("n0") == ["a.example"]
    rig.asked[-1][1].callback([])
    rig.clock.advance(1.9)
    assert rig.doubt("n0") == []
    rig.clock.advance(0.1)
    assert rig.doubt("n0") == ["a.example"]


def test_a_name_that_nobody_knows_any_more_leaves_its_member_where_it_was() -> None:
    rig = Rig()
    rig.members.located("n0", ["10.0.0.7"])
    rig.doubt("n0")
    rig.asked[0][1].callback([])
    assert rig.members._places["n0"] == {"10.0.0.7"}
