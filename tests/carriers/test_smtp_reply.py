"""SMTP replies: parsed from bytes, and classified by the command that they answer."""

import pytest

from heliograph.inbound.policy.smtp_reply import (
    Reply,
    Verb,
    Verdict,
    classify_reply,
    pauses_host,
    read_reply,
    read_size,
)


def reply(text: str) -> Reply:
    read = read_reply([line.encode() for line in text.split("\n")])
    assert read
    return read


@pytest.mark.parametrize(
    ("text", "verb", "expected"),
    [
        ("250 ok", "mail", "accepted"),
        ("250 2.1.5 ok", "rcpt", "accepted"),
        ("251 2.1.5 will forward", "rcpt", "accepted"),
        ("252 2.1.5 cannot verify", "rcpt", "accepted"),
        ("354 go on", "data", "accepted"),
        ("250 2.0.0 queued", "final", "accepted"),
        ("220 hello", "connect", "accepted"),
        # address-level
        ("550 5.1.1 no such user", "rcpt", "bounced"),
        ("550 5.1.2 no such host", "rcpt", "absent"),
        ("550 5.1.2 rejected", "rcpt", "absent"),
        ("550 5.4.4 Host or domain name not found", "rcpt", "absent"),
        ("550 5.1.1 unknown domain", "final", "absent"),
        ("501 5.1.3 bad syntax", "rcpt", "bounced"),
        ("551 5.1.6 moved", "rcpt", "bounced"),
        ("556 5.1.10 null MX", "rcpt", "bounced"),
        ("550 5.2.1 disabled", "rcpt", "bounced"),
        ("550 no such user", "rcpt", "bounced"),
        ("551 user not local", "rcpt", "bounced"),
        ("553 no such mailbox", "rcpt", "bounced"),
        ("550 5.1.1 no such user", "data", "bounced"),
        ("550 5.1.1 no such user", "final", "bounced"),
        ("550-5.1.1 no\n550 5.1.1 such user", "rcpt", "bounced"),
        ("550 #5.1.1 no such user", "rcpt", "bounced"),
        # policy, size, quota and other permanent rejections
        ("550", "rcpt", "failed"),
        ("550 5.7.1 policy", "rcpt", "failed"),
        ("554 5.7.1 spam", "final", "failed"),
        ("550 5.7.26 unauthenticated", "final", "failed"),
        ("552 too big", "final", "failed"),
        ("552 5.3.4 too big", "mail", "failed"),
        ("552 5.2.2 full", "rcpt", "failed"),
        ("550 5.2.2 full", "rcpt", "failed"),
        ("550 5.1.0 rejected", "rcpt", "failed"),
        ("550 5.1.8 bad sender", "rcpt", "failed"),
        ("550 5.1.11 not of the list", "rcpt", "failed"),
        ("554 no", "rcpt", "failed"),
        ("503 bad sequence", "rcpt", "failed"),
        ("555 unknown parameter", "mail", "failed"),
        ("550 4.1.1 confused", "rcpt", "failed"),
        # the sender's fault does not suppress the recipient
        ("550 who are you", "mail", "failed"),
        ("550 5.1.1 who are you", "mail", "failed"),
        ("553 5.1.3 bad sender", "mail", "failed"),
        # temporary rejections
        ("421 4.3.2 closing", "connect", "deferred"),
        ("421 closing", "rcpt", "deferred"),
        ("450 4.2.1 greylisted", "rcpt", "deferred"),
        ("451 4.7.1 try later", "rcpt", "deferred"),
        ("452 4.2.2 full", "rcpt", "deferred"),
        ("451 5.1.1 confused", "rcpt", "deferred"),
        ("454 4.7.0 no TLS now", "starttls", "deferred"),
        ("451 local error", "final", "deferred"),
        # errors of the host, not of the message
        ("554 5.7.1 you are blocked", "connect", "deferred"),
        ("521 no mail here", "connect", "deferred"),
        ("550 bad name", "ehlo", "deferred"),
        ("535 5.7.8 wrong password", "auth", "deferred"),
        # protocol violations
        ("250 ok", "data", "deferred"),
        ("354 go on", "rcpt", "deferred"),
        ("354 go on", "final", "deferred"),
        ("250 ok", "body", "deferred"),
    ],
)
def test_reply_gives_the_expected_outcome(text: str, verb: Verb, expected: Verdict) -> None:
    assert classify_reply(reply(text), verb) == expected


@pytest.mark.parametrize(
    ("lines", "code", "enhanced", "text"),
    [
        ([b"250 2.0.0 ok"], 250, "2.0.0", "250 2.0.0 ok"),
        ([b"250"], 250, None, "250"),
        ([b"250 "], 250, None, "250"),
        ([b"550-5.1.1 No such", b"550-5.1.1 user", b"550 5.1.1 here"], 550, "5.1.1", "550 5.1.1 No such user here"),
        ([b"550-no such", b"550 5.1.1 user"], 550, "5.1.1", "550 no such user"),
        ([b"550-5.7.1 blocked", b"550 see https://x"], 550, "5.7.1", "550 5.7.1 blocked see https://x"),
        ([b"250-fine", b"550 not"], 550, None, "550 fine not"),
        ([b"550 1.2.3.4 is blocked"], 550, None, "550 1.2.3.4 is blocked"),
        ([b"550 5.1.1.4 is blocked"], 550, None, "550 5.1.1.4 is blocked"),
        ([b"550 a\x00\x1b[31m\xe2\x80\xa8b"], 550, None, "550 a?[31m?b"),
        ([b"550 n\xc3\xb6 \xff\xfe"], 550, None, "550 nö ?"),
        ([b"550 " + b"x" * 2000], 550, None, "550 " + "x" * 496),
    ],
)
def test_reply_lines_are_parsed(lines: list[bytes], code: int, enhanced: str | None, text: str) -> None:
    read = read_reply(lines)
    assert read is not None
    assert (read.code, read.enhanced, read.text) == (code, enhanced, text)


@pytest.mark.parametrize("line", [b"", b"hello", b"25", b"2500 ok", b"650 ok", b"150 ok", b"\xd9\xa2\xd9\xa5"])
def test_invalid_reply_is_an_error(line: bytes) -> None:
    assert read_reply([line]) is None
    assert read_reply([b"250-ok", line]) is None


@pytest.mark.parametrize(("code", "pauses"), [("421", True), ("450", False), ("521", False), (None, False)])
def test_only_421_pauses_the_host(code: str | None, pauses: bool) -> None:
    assert pauses_host({"code": code}) == pauses


@pytest.mark.parametrize(
    ("parameter", "limit"),
    [("", 0), ("0", 0), ("1000", 1000), ("10 20", 10), ("x", 0), ("-5", 0), ("9" * 5000, 10**18 - 1)],
)
def test_size_capability_is_parsed(parameter: str, limit: int) -> None:
    assert read_size(parameter) == limit
