"""Advice for failures whose text comes from a server, which does not know the user's options."""


def hint(text: str, *, has_account: bool, use_tls: bool) -> str:
    """
    Return advice for a failure.

    :param text: the failure's text.
    :returns: text to append to the failure; empty: no advice is known.
    """
    for words, is_so, advice in (
        (
            "the request is not signed",
            not has_account,
            "give an account: RMQHA_ACCESS_KEY and RMQHA_SECRET_KEY, or a --context",
        ),
        (
            "the name server answered REQUEST_CODE_NOT_SUPPORTED",
            True,
            "is this a broker's port? A name server's is 9876, unless listenPort is set",
        ),
        (
            "Connection was closed cleanly",
            not use_tls,
            "it may take TLS only: try --tls, with --tls-ca; its log says why it closed",
        ),
        (
            "or its secret key is another",
            True,
            "compare RMQHA_ACCESS_KEY and RMQHA_SECRET_KEY with the broker's plain_acl.yml; an "
            "admin gives a new secret: acl set ACCOUNT, with RMQHA_NEW_SECRET",
        ),
        (
            "needs PUB",
            True,
            "an admin grants it: acl set ACCOUNT --topic TOPIC=PUB",
        ),
        (
            "needs SUB",
            True,
            "an admin grants it: acl set ACCOUNT --topic TOPIC=SUB --group GROUP=SUB",
        ),
        (
            "none makes topics by itself",
            True,
            "rmqha-admin topic create TOPIC",
        ),
        (
            "is of another root than ours",
            True,
            "--tls-ca has to name the root that the server's certificate comes from",
        ),
    ):
        if is_so and words in text:
            return f"; {advice}"
    return ""
