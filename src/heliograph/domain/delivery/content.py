"""What is handed over to a carrier: one record a channel, kept as JSON until the retention ends."""

from typing import Any

import msgspec


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attachment: small ones carry their base64, large ones the hash of their file."""

    filename: str
    content_type: str
    size: int
    base64: str | None = None
    blob: str | None = None
    content_id: str | None = None  # shown inside the HTML, which names it as `cid:…`
    alternative: bool = False  # to text and HTML: an invitation


class EmailContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    from_name: str
    from_address: str
    to: list[str]
    cc: list[str] = []
    reply_to: str | list[str] | None = None
    headers: dict[str, str] = {}  # the caller's own
    subject: str
    html: str | None = None
    text: str | None = None
    attachments: list[File] = []


_SHARED = ("from_name", "from_address", "html", "text")


def split_mail(content: EmailContent) -> tuple[bytes, bytes]:
    """Return what is its own, as JSON, and what other mails may have, too: members of the same object, without its
    braces.

    The sender is shared, so that a version which does not know of this cannot take the rest for a mail.
    """
    own: dict[str, Any] = msgspec.to_builtins(content)
    shared = {name: own.pop(name) for name in _SHARED if name in own}
    return msgspec.json.encode(own), msgspec.json.encode(shared)[1:-1]


class SmsContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    body: str
    sender_id: str
    platform_sender: bool = False  # only the platform's default: a carrier's own sender replaces it
    encoding: str
    segments: int  # billed, by the team's setting
    parts: int  # as the air interface counts
    is_answer: bool = False  # to a text: no simulated phone answers it
    validity_s: int = 0  # how long the carrier may try, by its template; 0: as long as it pleases

    def sender(self, own: str) -> str:
        """Return who it is from, for a carrier with a sender of its own (spec 4.2)."""
        return own if own and self.platform_sender else self.sender_id

    def validity(self, left_s: int | None) -> int:
        """Return how long a carrier that gets it now may try; 0: as long as it pleases."""
        return min(self.validity_s or left_s, left_s) if left_s else self.validity_s


class WhatsappContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    template: str  # upstream name
    language: str
    parameters: list[str] = []  # in manifest order
    button: str = ""  # the code that the button of an AUTHENTICATION template copies
    body: str  # what previews and the simulator show
    is_answer: bool = False  # to a text, as text: there is no template


CONTENTS: dict[str, type[EmailContent | SmsContent | WhatsappContent]] = {
    "email": EmailContent,
    "sms": SmsContent,
    "whatsapp": WhatsappContent,
}
