"""Layout of the platform's own mails, as text and HTML. Names in them are reduced to one safe line."""

from html import escape

import msgspec

from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.setup.records import Platform
from heliograph.domain.text import CONTROL_CHARACTER, collapse_spaces

LINE_MAX = 300  # maximum characters of a sentence
SUBJECT_MAX = 150
AUTOMATIC = {"Auto-Submitted": "auto-generated"}  # suppresses automatic replies (RFC 3834)


class SystemMail(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    summary: str  # first sentence: what happened
    action: str = ""  # what the reader should do
    items: tuple[str, ...] = ()  # list items, if several things happened
    code: str = ""  # code to type
    button: tuple[str, str] = ("", "")  # label and URL of one of our own pages
    footer: str = ""  # why the mail was sent, and what happens if the reader does nothing
    settings_url: str = ""  # URL of the notification settings
    language: str = "en"


def build_content(mail: SystemMail, platform: Platform, address: str) -> EmailContent:
    return EmailContent(
        from_name=platform.brand,
        from_address=platform.sender,
        to=[address],
        subject=to_safe_line(mail.subject, SUBJECT_MAX),
        text=render_text(mail),
        html=render_html(mail, platform.brand),
        headers=AUTOMATIC | ({"List-Unsubscribe": f"<{mail.settings_url}>"} if mail.settings_url else {}),
    )


def render_text(mail: SystemMail) -> str:
    label, link = mail.button
    parts = [
        " ".join(filter(None, (to_safe_line(mail.summary), to_safe_line(mail.action)))),
        "\n".join(f"- {to_safe_line(line)}" for line in mail.items),
        mail.code,
        f"{label}:\n{link}" if link else "",
        to_safe_line(mail.footer),
        f"Choose your notices: {mail.settings_url}" if mail.settings_url else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def render_html(mail: SystemMail, brand: str) -> str:
    """Return the mail as HTML without images, tables or external links, for light and dark mode."""
    label, link = mail.button
    lines = "".join(f"<li>{_escape_line(line)}</li>" for line in mail.items)
    parts = [
        f'<p class="q" style="{_MUTED_STYLE}">{_escape_line(brand)}</p>',
        f'<h1 style="margin:0 0 12px;font-size:20px;line-height:1.3">{_escape_line(mail.subject, SUBJECT_MAX)}</h1>',
        f'<p style="margin:0 0 12px">{_escape_line(mail.summary)}</p>',
        f'<p style="margin:0 0 12px">{_escape_line(mail.action)}</p>' if mail.action else "",
        f'<ul style="margin:0 0 12px;padding-left:20px">{lines}</ul>' if lines else "",
        f'<p style="margin:0 0 12px;font-size:24px;letter-spacing:2px"><strong>{_escape_line(mail.code)}</strong></p>'
        if mail.code
        else "",
        f'<p style="margin:20px 0"><a class="b" href="{escape(link)}" style="{_BUTTON}">{_escape_line(label)}</a></p>'
        if link
        else "",
        f'<p class="q" style="{_MUTED_STYLE};margin-top:24px">{_escape_line(mail.footer)}</p>' if mail.footer else "",
        f'<p class="q" style="{_MUTED_STYLE}"><a class="l" href="{escape(mail.settings_url)}" style="color:#5b5b66">'
        "Choose your notices</a></p>"
        if mail.settings_url
        else "",
    ]
    return _PAGE.format(
        language=escape(mail.language),
        title=_escape_line(mail.subject, SUBJECT_MAX),
        body="\n".join(filter(None, parts)),
    )


def to_safe_line(text: str, max_length: int = LINE_MAX) -> str:
    text = collapse_spaces(CONTROL_CHARACTER.sub(" ", text))
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _escape_line(text: str, max_length: int = LINE_MAX) -> str:
    return escape(to_safe_line(text, max_length))


_MUTED_STYLE = "margin:0 0 12px;font-size:13px;color:#5b5b66"
_BUTTON = (
    "display:inline-block;padding:10px 18px;border-radius:8px;background:#4f46e5;color:#ffffff;"
    "font-weight:600;text-decoration:none"
)
# Clients with dark mode support use the style sheet; others show dark text on white from the inline styles.
_PAGE = """\
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
