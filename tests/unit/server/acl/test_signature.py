"""What is signed, and the signature."""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.acl.signature import Signer, SigningContent
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SigningCalls, sign
from rmq_ha.base.wire.command import RemotingCommand

# remoting.md, A.1 and A.10: made by the Java client's hook.
GOLDEN_EXT = {
    "a": "PG",
    "b": "TopicA",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "TAGS\x01TagA\x02UNIQ_KEY\x017F000001000118B4AAC20000000A0000\x02WAIT\x01true",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def signing_content(ext: Mapping[str, str]) -> bytes:
    """By somebody who has seen no order of keys before."""
    return SigningContent().bytes_of(ext)


def test_golden_signature() -> None:
    command = RemotingCommand(310, dict(GOLDEN_EXT), b"hi")
    signed = sign(command, Credentials("RocketMQ", "12345678"))
    assert signed.ext is not None
    assert signed.ext["Signature"] == "X9e/pU0p8dM5TZb/cqM8RiBN8T8="
    assert len(signing_content(signed.ext)) + 2 == 121
    assert command.ext == GOLDEN_EXT  # a copy was signed


def test_a_signature_and_the_mark_of_a_query_are_not_signed() -> None:
    plain = signing_content({"b": "2", "a": "1"})
    assert plain == b"12"
    assert signing_content({"b": "2", "a": "1", "Signature": "x"}) == plain
    assert signing_content({"_UNIQUE_KEY_QUERY": "true", "b": "2", "a": "1"}) == plain
    assert signing_content({"a": "1"}) == b"1"
    assert signing_content({}) == b""


def test_keys_are_ordered_by_utf16_unit() -> None:
    # U+1F600 begins with D83D in UTF-16, which is below U+FF21.
    assert signing_content({"\uff21": "2", "\U0001f600": "1", "Z": "0"}) == b"012"


def test_the_token_is_signed_and_sent() -> None:
    with_token = sign(RemotingCommand(28), Credentials("someaccount", "12345678", "token"))
    without = sign(RemotingCommand(28), Credentials("someaccount", "12345678"))
    assert with_token.ext is not None
    assert without.ext is not None
    assert with_token.ext["SecurityToken"] == "token"
    assert with_token.ext["Signature"] != without.ext["Signature"]
    assert "SecurityToken" not in without.ext


def test_signing_again_replaces_the_signature() -> None:
    first = sign(RemotingCommand(28, {"a": "1"}), Credentials("firstaccount", "12345678"))
    again = sign(first, Credentials("secondaccount", "12345678"))
    assert again == sign(RemotingCommand(28, {"a": "1"}), Credentials("secondaccount", "12345678"))


def test_credentials_do_not_show_the_secret() -> None:
    assert "12345678" not in repr(Credentials("someaccount", "12345678"))


def test_calls_are_signed_on_their_way() -> None:
    seen = []

    class Calls:
        def invoke(self, address, command, timeout_ms):
            seen.append((address, command, timeout_ms))

        def oneway(self, address, command):
            seen.append((address, command, None))

    account = Credentials("someaccount", "12345678")
    calls = SigningCalls(Calls(), RequestSigner(account))
    calls.invoke("a:1", RemotingCommand(21), 5)
    calls.oneway("a:2", RemotingCommand(15, {"k": "v"}, b"body"))
    assert seen == [
        ("a:1", sign(RemotingCommand(21), account), 5),
        ("a:2", sign(RemotingCommand(15, {"k": "v"}, b"body"), account), None),
    ]


@given(st.text(min_size=1, max_size=200), st.binary(max_size=300), st.binary(max_size=300))
def test_it_is_hmac_sha1(secret: str, content: bytes, body: bytes) -> None:
    key = secret.encode("utf-8", "replace")
    expected = b64encode(hmac.digest(key, content + body, sha1)).decode()
    signer = Signer(secret)
    assert signer.sign(content, body) == expected
    assert signer.is_signed(expected, content, body)
    assert not signer.is_signed(expected[:-2] + "!=", content, body)
    assert not signer.is_signed("", content, body)
    assert not signer.is_signed("\ud800", content, body)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=6), max_size=5))
def test_a_remembered_order_changes_nothing(maps: list[dict[str, str]]) -> None:
    content = SigningContent()
    for ext in [*maps, *maps]:
        assert content.bytes_of(ext) == signing_content(ext)


def test_hostile_key_sets_fill_no_memory() -> None:
    content = SigningContent()
    for number in range(1000):
        assert content.bytes_of({str(number): "v", "x": "w"}) == b"vw"
    assert content._joiner.cache_info().currsize <= 256
