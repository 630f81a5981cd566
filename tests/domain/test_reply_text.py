"""The author's text without quotations: one readable file for each mail program and language."""

from pathlib import Path

import pytest

from heliograph.inbound.policy.inbound_parser import parse_inbound_mail
from heliograph.inbound.policy.reply_text import READ_MAX, reply_text

REPLIES = sorted(Path(__file__).with_name("golden").glob("replies/*.txt"))


@pytest.mark.parametrize("file", REPLIES, ids=lambda file: file.stem)
def test_reply_text_excludes_the_quoted_message(file: Path) -> None:
    text, message = file.read_text("utf-8").split("\n=====\n")
    assert reply_text(text) == message.strip("\n")


@pytest.mark.parametrize(
    "quote",
    [
        '<div class="gmail_quote"><div>On Mon, Acme wrote:</div><blockquote>Old</blockquote></div>',
        '<div id="appendonsend"></div><hr><div id="divRplyFwdMsg"><b>From:</b> Acme</div>Old',
        '<blockquote type="cite"><div>On 16 Nov 2026, Acme wrote:</div>Old</blockquote>',
        '<div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt"><b>From:</b> Acme</div>Old',
        '<div class="moz-cite-prefix">On 16/11/2026, Acme wrote:</div><blockquote>Old</blockquote>',
        '<div class="yahoo_quoted">On Monday, Acme wrote:<div>Old</div></div>',
    ],
)
def test_reply_text_is_read_from_html_alone(quote: str) -> None:
    mail = f"From: a@b.test\nContent-Type: text/html\n\n<p>New <b>words</b></p>{quote}".encode()
    assert parse_inbound_mail(mail, "a@b.test", []).reply_text == "New words"


@pytest.mark.parametrize("piece", ["> ", "a: ", "On ", "From:\n", "\n", "wrote:\n", "-----", "@:", "年"])
def test_reply_text_takes_linear_time_for_any_text(piece: str) -> None:
    assert isinstance(reply_text(piece * (READ_MAX // len(piece))), str)
