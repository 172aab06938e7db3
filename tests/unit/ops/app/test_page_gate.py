"""Who may look at the page."""

from random import Random
from typing import Any

import pytest

from rmq_ha.base.acl.signature import Signer
from rmq_ha.ops.app.page.gate import (
    CHALLENGE_S,
    DOMAIN,
    MOST_SESSIONS,
    MOST_USED,
    SESSION_S,
    Gate,
    NotAllowed,
)

TOKEN = "sixteen characters"
HOST = "10.0.0.9"


def gate(**more: Any) -> Gate:
    wanted: dict[str, Any] = {"token": TOKEN, "administrator": None, "is_guarded": True, **more}
    return Gate(Random(1), **wanted)


def signed(secret: str, challenge: str) -> str:
    return Signer(secret, is_long=True).sign((DOMAIN + challenge).encode())


@pytest.mark.parametrize(
    ("token", "accounts", "is_guarded", "expected"),
    [
        ("", False, False, "open"),
        ("", False, True, "shut"),
        (TOKEN, False, False, "asks"),
        (TOKEN, False, True, "asks"),
        ("", True, True, "asks"),
    ],
)
def test_who_is_asked(token: str, accounts: bool, is_guarded: bool, expected: str) -> None:
    administrator = (lambda *_: True) if accounts else None
    it = gate(token=token, administrator=administrator, is_guarded=is_guarded)
    assert (it.is_open, it.is_shut) == (expected == "open", expected == "shut")


def test_the_token_signs_a_challenge_and_gets_a_session() -> None:
    it = gate()
    challenge = it.challenge(0)
    session = it.enter(1, HOST, "", challenge, signed(TOKEN, challenge))
    assert it.account_of(2, session) == "token"
    assert it.account_of(2, "another") is None
    assert it.account_of(SESSION_S + 2, session) is None
    it.leave(session)
    assert it.account_of(2, session) is None


def test_time_is_over_in_the_moment_in_which_it_ends() -> None:
    it = gate()
    challenge = it.challenge(0)
    with pytest.raises(NotAllowed, match="too old"):
        it.enter(CHALLENGE_S, HOST, "", challenge, signed(TOKEN, challenge))
    challenge = it.challenge(CHALLENGE_S)
    first = it.enter(CHALLENGE_S, HOST, "", challenge, signed(TOKEN, challenge))
    end = CHALLENGE_S + SESSION_S
    assert (it.account_of(end - 1, first), it.account_of(end, first)) == ("token", None)
    challenge = it.challenge(end)
    it.enter(end, HOST, "", challenge, signed(TOKEN, challenge))
    assert first not in it._sessions
    assert list(it._used) == [challenge]


def test_a_challenge_is_good_once_and_for_a_while() -> None:
    it = gate()
    challenge = it.challenge(0)
    it.enter(1, HOST, "", challenge, signed(TOKEN, challenge))
    with pytest.raises(NotAllowed, match="used already"):
        it.enter(1, HOST, "", challenge, signed(TOKEN, challenge))
    challenge = it.challenge(0)
    with pytest.raises(NotAllowed, match="too old"):
        it.enter(CHALLENGE_S + 1, HOST, "", challenge, signed(TOKEN, challenge))
    with pytest.raises(NotAllowed):
        it.enter(1, HOST, "", "made up", signed(TOKEN, "made up"))


def test_wrong_proofs_lock_nobody_out() -> None:
    """Five of them refused the right one for ten seconds to all behind one address."""
    it = gate()
    for _ in range(300):
        challenge = it.challenge(0)
        with pytest.raises(NotAllowed, match="is wrong"):
            it.enter(0, HOST, "", challenge, signed("wrong", challenge))
        assert not it.shows_token("wrong")
    assert it.shows_token(TOKEN)
    challenge = it.challenge(0)
    assert it.enter(0, HOST, "", challenge, signed(TOKEN, challenge))


def test_asking_for_challenges_voids_nobody_elses() -> None:
    """256 requests did, in less than a second."""
    it = gate()
    first = it.challenge(0)
    for _ in range(1000):
        it.challenge(1)
    assert it.enter(2, HOST, "", first, signed(TOKEN, first))


@pytest.mark.parametrize("change", ["", "0", "-", "--", "longer", "a-b-c", "\u00e9-\u00e9"])
def test_a_challenge_of_somebody_else_is_none(change: str) -> None:
    it = gate()
    nonce, _, seal = gate().challenge(0).split("-")
    made = "-".join((nonce, f"{2**40:x}", seal)) if change == "longer" else change
    with pytest.raises(NotAllowed, match="too old"):
        it.enter(0, HOST, "", made, signed(TOKEN, made))


def test_an_account_is_asked_of_access_control() -> None:
    asked: list[Any] = []
    it = gate(token="", administrator=lambda *args: asked.append(args) or args[0] == "admin")
    challenge = it.challenge(0)
    assert it.enter(0, HOST, "admin", challenge, "a signature")
    assert asked == [("admin", "a signature", (DOMAIN + challenge).encode(), HOST)]
    challenge = it.challenge(0)
    with pytest.raises(NotAllowed, match="no administrator"):
        it.enter(0, HOST, "guest", challenge, "a signature")
    challenge = it.challenge(0)
    with pytest.raises(NotAllowed):
        it.enter(0, HOST, "", challenge, signed("", challenge))


def test_nothing_grows_without_end() -> None:
    it = gate()
    for _ in range(MOST_SESSIONS * 2):
        challenge = it.challenge(0)
        it.enter(0, HOST, "", challenge, signed(TOKEN, challenge))
    assert len(it._sessions) <= MOST_SESSIONS
    assert len(it._used) <= MOST_USED


def test_scripts_show_the_token() -> None:
    it = gate()
    assert it.shows_token(TOKEN)
    assert not it.shows_token("")
    assert not it.shows_token(TOKEN + "x")
    assert not gate(token="", administrator=lambda *_: True).shows_token("")
