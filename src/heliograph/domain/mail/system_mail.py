"""Layout of the platform's own mails, as text and HTML. Inserted names are reduced to one safe line."""

from html import escape

import msgspec

from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.setup.records import Platform
from heliograph.domain.text import CONTROLS, single_spaced

LINE_MAX = 300  # maximum characters of a sentence
SUBJECT_MAX = 150
AUTOMATIC = {"Auto-Submitted": "auto-generated"}  # suppresses automatic replies (RFC 3834)


class OwnMail(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    said: str  # first sentence: what happened
    todo: str = ""  # what the reader should do
    lines: tuple[str, ...] = ()  # list items, if several things happened
    code: str = ""  # code to type
    button: tuple[str, str] = ("", "")  # label and URL of one of our own pages
    end: str = ""  # why the mail was sent, and what happens if the reader does nothing
    settings: str = ""  # URL of the notification settings
    language: str = "en"


def to_content(mail: OwnMail, platform: Platform, address: str) -> EmailContent:
    return EmailContent(
        from_name=platform.brand,
        from_address=platform.sender,
        to=[address],
        subject=one_line(mail.subject, SUBJECT_MAX),
        text=to_text(mail),
        html=to_html(mail, platform.brand),
        headers=AUTOMATIC | ({"List-Unsubscribe": f"<{mail.settings}>"} if mail.settings else {}),
    )


def to_text(mail: OwnMail) -> str:
    label, link = mail.button
    parts = [
        " ".join(filter(None, (one_line(mail.said), one_line(mail.todo)))),
        "\n".join(f"- {one_line(line)}" for line in mail.lines),
        mail.code,
        f"{label}:\n{link}" if link else "",
        one_line(mail.end),
        f"Choose what you are told: {mail.settings}" if mail.settings else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_html(mail: OwnMail, brand: str) -> str:
    """Return HTML without images, tables or external links, for light and dark mode."""
    label, link = mail.button
    lines = "".join(f"<li>{_html(line)}</li>" for line in mail.lines)
    parts = [
        f'<p class="q" style="{_QUIET}">{_html(brand)}</p>',
        f'<h1 style="margin:0 0 12px;font-size:20px;line-height:1.3">{_html(mail.subject, SUBJECT_MAX)}</h1>',
        f'<p style="margin:0 0 12px">{_html(mail.said)}</p>',
        f'<p style="margin:0 0 12px">{_html(mail.todo)}</p>' if mail.todo else "",
        f'<ul style="margin:0 0 12px;padding-left:20px">{lines}</ul>' if lines else "",
        f'<p style="margin:0 0 12px;font-size:24px;letter-spacing:2px"><strong>{_html(mail.code)}</strong></p>'
        if mail.code
        else "",
        f'<p style="margin:20px 0"><a class="b" href="{escape(link)}" style="{_BUTTON}">{_html(label)}</a></p>'
        if link
        else "",
        f'<p class="q" style="{_QUIET};margin-top:24px">{_html(mail.end)}</p>' if mail.end else "",
        f'<p class="q" style="{_QUIET}"><a class="l" href="{escape(mail.settings)}" style="color:#5b5b66">'
        "Choose what you are told</a></p>"
        if mail.settings
        else "",
    ]
    return _FRAME.format(
        language=escape(mail.language), title=_html(mail.subject, SUBJECT_MAX), body="\n".join(filter(None, parts))
    )


def one_line(text: str, most: int = LINE_MAX) -> str:
    text = single_spaced(CONTROLS.sub(" ", text))
    return text if len(text) <= most else text[: most - 1] + "…"


def _html(text: str, most: int = LINE_MAX) -> str:
    return escape(one_line(text, most))


_QUIET = "margin:0 0 12px;font-size:13px;color:#5b5b66"
_BUTTON = (
    "display:inline-block;padding:10px 18px;border-radius:8px;background:#4f46e5;color:#ffffff;"
    "font-weight:600;text-decoration:none"
)
# Clients with dark mode support use the style sheet; others show dark text on white from the inline styles.
_FRAME = """\
<!doctype html>
<html lang="{language}" dir="auto">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; supported-color-schemes: light dark; }}
@media (prefers-color-scheme: dark) {{
  .g {{ background: #121215 !important; color: #f1f1f4 !important; }}
  .c {{ background: #18181c !important; border-color: #2d2d35 !important; }}
  .q, .l {{ color: #a9a9b6 !important; }}
  .b {{ background: #554ee8 !important; color: #ffffff !important; }}
}}
</style>
</head>
<body class="g" style="margin:0;padding:24px 12px;background:#f7f7f9;color:#18181b;\
font:16px/1.5 -apple-system,'Segoe UI',Roboto,Ubuntu,Arial,sans-serif">
<div class="c" style="max-width:560px;margin:0 auto;padding:28px 24px;background:#ffffff;border:1px solid #e4e4ea;\
border-radius:12px">
{body}
</div>
</body>
</html>
"""
