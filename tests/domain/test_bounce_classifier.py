"""Bounce classification: a table of replies by provider and in many languages, and hostile texts."""

import time
from pathlib import Path
from typing import Any

import pytest

from heliograph.inbound.policy.bounce_classifier import ADDRESS_CODES, TEXT_MAX, blames_address, find_reason
from heliograph.inbound.policy.smtp_reply import Verdict, classify_reply, pauses_host, read_reply

REPLIES = Path(__file__).parent / "golden" / "replies.tsv"
DONE: dict[Verdict, str] = {
    "bounced": "suppress",
    "absent": "suppress",  # after the second report
    "failed": "fail",
    "deferred": "retry",
    "accepted": "accept",
}


def replies() -> list[list[str]]:
    return [line.split("\t") for line in REPLIES.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("provider", "verb", "must", "text"), replies())
def test_provider_bounce_reply_is_classified(provider: str, verb: Any, must: str, text: str) -> None:
    reply = read_reply([line.encode() for line in text.split("\\n")])
    assert reply
    done = "pause" if pauses_host({"code": str(reply.code)}) else DONE[classify_reply(reply, verb)]
    assert done == must


@pytest.mark.parametrize("code", sorted(ADDRESS_CODES))
def test_code_decides_if_the_text_gives_no_reason(code: str) -> None:
    assert blames_address(None, code)
    assert blames_address(None, "5.0.0", code)
    assert not blames_address(None, code, "5.7.1")
    assert not blames_address(find_reason("your mailbox is full"), code)


@pytest.mark.parametrize("code", [None, "5.0.0", "5.1.0", "5.7.1", "5.2.2", "5.4.4", "4.1.1", "5.1.8"])
def test_code_outside_the_list_does_not_blame_the_address(code: str | None) -> None:
    assert not blames_address(find_reason("rejected"), code)
    assert blames_address(find_reason("user unknown"), code)


HOSTILE = ["user a ", "mail box ", "a", "a.", "a@", "not a ", "unknown a ", "www.", "recipient address ", "a-", "<a@b "]
HOSTILE += [
    "por a ",
    "not rfc",
    "no valid ",
    "konto ",
    "skrzynka ",
    "θυριδα",
    "over a ",
    "unable to ",
    "okand ",
    "البريد",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_cost_grows_with_the_text(piece: str) -> None:
    def cost(size: int) -> float:
        text = (piece * size)[:size]
        start = time.thread_time()
        find_reason(text)
        return time.thread_time() - start

    for size in (TEXT_MAX, TEXT_MAX * 4):  # one of three measurements suffices: the machine may be busy
        assert any(cost(size) < 8 * cost(size // 4) for _ in range(3))
