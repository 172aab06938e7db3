"""
DLedger groups of three and five under faults, and bugs planted to see whether they are found.

RMQ_HA_SIM_RAFT_SEEDS says how many groups (100; about 0.05 s of CPU each; `tox -e sim` runs 1000);
they begin at RMQ_HA_SIM_FIRST (0).
"""

import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest

from rmq_ha.server.dledger.actions import Persist
from rmq_ha.server.dledger.election import Election
from rmq_ha.server.dledger.follower import Follower
from rmq_ha.server.dledger.member import Member
from rmq_ha.server.dledger.push import Pusher
from rmq_ha.server.dledger.quorum import Quorum
from tests.sim_kit import raft as raft_module
from tests.sim_kit.raft import Machine, RaftOptions
from tests.sim_kit.simulate import RAFT, run_raft, run_seeds

FIRST = int(os.environ.get("RMQ_HA_SIM_FIRST", "0"))
COUNT = int(os.environ.get("RMQ_HA_SIM_RAFT_SEEDS", "100"))
JOBS = os.cpu_count() or 1


def test_seeds():
    """No promise is broken, and the group agrees soon after the last fault."""
    seeds = range(FIRST, FIRST + COUNT)
    failed, faults, puts, leaders = [], 0, 0, 0
    for result in run_seeds(seeds, JOBS, RAFT):
        faults += len(result.faults)
        puts += result.statuses.get("ok", 0)
        leaders += result.statuses.get("leaders", 0)
        if not result.ok:
            failed.append(result.report())
    assert not failed, "\n".join(failed)
    assert faults > 6 * COUNT
    assert puts > 80 * COUNT
    assert leaders > 2 * COUNT


@pytest.mark.trials
def test_determinism():
    """Equal seeds give equal digests, whatever the order of sets and hashes in the process."""
    script = (
        "from tests.sim_kit.simulate import run_raft\n"
        "print(*[run_raft(seed, 3).digest for seed in (3, 4, 5)], run_raft(3, 5).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(set(digests.pop().split())) == 4


# Planted bugs


class Planted:
    """Bugs by name; each takes a monkeypatch and returns settings for the group."""

    @staticmethod
    def vote_is_not_persisted(patch):
        """Term and vote are forgotten in a crash (Raft, 5.2: stored before responding)."""
        patch.setattr(Member, "persist", lambda self: None)

    @staticmethod
    def vote_leaves_before_it_is_persisted(patch):
        """The shell does not wait for the disk."""
        act = Machine._act

        def hasty(self, action):
            act(self, action)
            if type(action) is Persist:
                waiting, self._persisting = self._persisting, None
                context = (self.incarnation, waiting)
                self.group.after(20000, persisted, (self, context))

        def persisted(context):
            machine, (incarnation, waiting) = context
            if machine.incarnation == incarnation:
                machine.term_vote = waiting

        patch.setattr(Machine, "_act", hasty)

    @staticmethod
    def votes_for_two(patch):
        """Each candidate of a term gets the vote (Raft, 5.2: at most one)."""
        judge = Election._judge

        def generous(self, request, is_self):
            self._member.voted_for = None
            return judge(self, request, is_self)

        patch.setattr(Election, "_judge", generous)

    @staticmethod
    def votes_for_short_ledgers(patch):
        """The candidate's ledger does not matter (Raft, 5.4.1)."""
        patch.setattr(Election, "_judge_ledger", lambda self, request: None)

    @staticmethod
    def commits_earlier_terms(patch):
        """Entries of earlier terms are committed by counting (Raft, 5.4.2, figure 8)."""
        return {"commit_own_term_only": False}

    @staticmethod
    def commits_what_a_minority_has(patch):
        """The watermarks are read one too early (10.3)."""
        patch.setattr(
            "rmq_ha.server.dledger.quorum.quorum_index", lambda m: sorted(m)[len(m) // 2 + 1]
        )

    @staticmethod
    def follower_answers_before_the_sync(patch):
        """An APPEND is acknowledged from the page cache (18.1, 14)."""

        def finish(self, request, token, code, index):
            self._durable.want(index)
            self._answer(token, request, code)

        patch.setattr(Follower, "_finish", finish)

    @staticmethod
    def leader_counts_itself_before_the_sync(patch):
        """Its own watermark is what it wrote."""
        mark = Quorum.mark

        def early(self, peer, index):
            if peer == self._member.self_id:
                index = self._member.ledger.end_index
            mark(self, peer, index)

        patch.setattr(Quorum, "mark", early)

    @staticmethod
    def follower_answers_before_it_writes(patch):
        """A success is sent for what was not written."""
        append = Follower._append

        def early(self, request, entries):
            return 200 if entries[0].index % 5 == 0 else append(self, request, entries)

        patch.setattr(Follower, "_append", early)

    @staticmethod
    def any_answer_counts_as_stored(patch):
        """The leader does not look at the code."""
        pushed = Pusher._pushed

        def credulous(self, message, first, count):
            if message is not None:
                self._is_stored(first, count)
            else:
                pushed(self, message, first, count)

        patch.setattr(Pusher, "_pushed", credulous)

    @staticmethod
    def leader_does_not_compare(patch):
        """A new leader takes for granted what the others have (11.2)."""
        compare = Pusher._compare

        def blind(self, pause):
            if self._member.ledger.end_index >= 0 and not pause:
                self._append_from(self._member.ledger.end_index)
            else:
                compare(self, pause)

        patch.setattr(Pusher, "_compare", blind)

    @staticmethod
    def follower_commits_what_it_has(patch):
        """The leader's committed index is applied to a tail that is not the leader's (11.7)."""

        def commit(self, request):
            ledger = self._member.ledger
            index = min(request.commit_index, ledger.end_index)
            if index > ledger.committed_index:
                ledger.commit(index)
                self._member.outbox.append(raft_module.CommitIndexMoved(index))

        def compare(self, request, entry):
            commit(self, request)
            return 200 if self._member.ledger.entry(entry.index) == entry else 406

        patch.setattr(Follower, "_commit", commit)
        patch.setattr(Follower, "_compare", compare)
        return {"check_previous": False}

    @staticmethod
    def puts_are_forgotten_on_step_down(patch):
        """Nobody answers those that wait when the leader steps down (18.1, 7)."""
        patch.setattr(Quorum, "_fail_puts", lambda self: None)

    @staticmethod
    def leads_twice_in_a_term(patch):
        """A leader that lost its tail in a crash leads again in the same term."""
        return {"new_term_after_restart": False}

    @staticmethod
    def larger_terms_are_ignored(patch):
        """A member whose term ran ahead with a short ledger can never return."""
        return {"heed_larger_term": False}


SYNCS = {"settings": {"sync_before_ack": True}, "sync_time": 20000}
POWER = SYNCS | {"kinds": {"power": 3, "blackout": 3, "isolate": 1}}
NO_SYNCS = {"settings": {"sync_before_ack": False}, "kinds": {"kill": 2, "isolate": 3}}
CRASHES = {"kinds": {"kill": 3, "blackout": 2, "isolate": 1}}
LEADERS_ALONE = {"kinds": {"isolate": 3, "kill": 1}, "busy": 40}
BUGS = {
    "vote_is_not_persisted": ("election-safety", CRASHES),
    "vote_leaves_before_it_is_persisted": ("election-safety", CRASHES),
    "votes_for_two": ("election-safety", {}),
    "votes_for_short_ledgers": ("leader-completeness", {}),
    "commits_earlier_terms": ("leader-completeness", LEADERS_ALONE),
    "commits_what_a_minority_has": ("state-machine-safety", {}),
    "follower_answers_before_the_sync": ("state-machine-safety", POWER),
    "leader_counts_itself_before_the_sync": ("state-machine-safety", POWER),
    "follower_answers_before_it_writes": ("acknowledged-lost", NO_SYNCS),
    "any_answer_counts_as_stored": ("state-machine-safety", {}),
    "leader_does_not_compare": ("acknowledged-lost", {}),
    "follower_commits_what_it_has": ("state-machine-safety", {}),
    "puts_are_forgotten_on_step_down": ("unanswered", {}),
    "leads_twice_in_a_term": ("log-matching", POWER),
    "larger_terms_are_ignored": ("progress", {}),
}
"""What a planted bug breaks, and the options under which it shows soon."""

LIMIT = 400


def hunt(name, monkeypatch, limit=LIMIT):
    """:returns: the first seed that finds a planted bug; None: none does."""
    kind, fixed = BUGS[name]
    changed = getattr(Planted, name)(monkeypatch) or {}
    for seed in range(limit):
        options = RaftOptions.draw(Random(f"{seed}/options"), 3)
        settings = options.settings | fixed.get("settings", {}) | changed
        options = replace(options, **(fixed | {"settings": settings}))
        result = run_raft(seed, options=options)
        if kind in [finding.kind for finding in result.violations]:
            return seed
    return None


@pytest.mark.trials
@pytest.mark.parametrize("name", BUGS)
def test_planted(name, monkeypatch):
    """The simulation finds it."""
    assert hunt(name, monkeypatch) is not None


@pytest.mark.parametrize("options", [POWER, CRASHES, LEADERS_ALONE])
def test_nothing_planted(options):
    """Without a planted bug those options find nothing."""
    for seed in range(20):
        drawn = RaftOptions.draw(Random(f"{seed}/options"), 3)
        settings = drawn.settings | options.get("settings", {})
        result = run_raft(seed, options=replace(drawn, **(options | {"settings": settings})))
        assert result.ok, result.report()
