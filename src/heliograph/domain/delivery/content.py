"""Message content sent to a carrier: one struct per channel, stored as JSON until retention ends."""

from typing import Any

import msgspec


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attachment. A small one is stored here as base64, a large one as a file, of which `blob` is the hash."""

    filename: str
    content_type: str
    size: int
    base64: str | None = None
    blob: str | None = None
    content_id: str | None = None  # inline file, referenced in the HTML as `cid:…`
    alternative: bool = False  # a multipart/alternative part beside text and HTML, such as a calendar invitation


class EmailContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    from_name: str  # empty only for a team with `catch`, whose emails never reach a real carrier
    from_address: str
    to: list[str]
    cc: list[str] = []
    reply_to: str | list[str] | None = None
    headers: dict[str, str] = {}  # additional headers set by the caller
    subject: str
    html: str | None = None
    text: str | None = None
    attachments: list[File] = []
    unsubscribe_url: str = ""  # for List-Unsubscribe, unless the caller sets it
    feedback_id: str = ""  # Feedback-ID header, unless the caller sets one
    variables: dict[str, Any] = {}  # as sent by the caller; stored to preview template drafts with recent variables


_SHARED_FIELDS = ("from_name", "from_address", "html", "text")


def split_email_content(content: EmailContent) -> tuple[bytes, bytes]:
    """Split the content into JSON that belongs to this mail alone, and JSON members that other mails may share.

    The shared members are JSON without braces. They include the sender, so that an older version of Heliograph cannot
    mistake the first part for a complete mail.
    """
    fields: dict[str, Any] = msgspec.to_builtins(content)
    shared = {name: fields.pop(name) for name in _SHARED_FIELDS if name in fields}
    return msgspec.json.encode(fields), msgspec.json.encode(shared)[1:-1]


class SmsContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    body: str
    sender_id: str
    platform_sender: bool = False  # `sender_id` is the platform default; a carrier with its own sender replaces it
    encoding: str
    segments: int  # number of billed segments; depends on the team's setting
    parts: int  # number of parts that phone networks transmit
    is_answer: bool = False  # reply to an inbound text; simulated phones do not answer it
    validity_s: int = 0  # validity period from the template; 0: the carrier's default
    variables: dict[str, Any] = {}  # template variables, as sent by the caller

    def sender(self, carrier_sender: str) -> str:
        """Return the sender id to use; `carrier_sender` is the carrier's configured sender (spec 4.2)."""
        return carrier_sender if carrier_sender and self.platform_sender else self.sender_id

    def validity(self, remaining_s: int | None) -> int:
        """Return the validity period in seconds if the message is sent now; 0 for the carrier's default."""
        return min(self.validity_s or remaining_s, remaining_s) if remaining_s else self.validity_s


class WhatsappContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    template: str  # name of the template at the provider
    language: str
    parameters: list[str] = []  # in the order in which the template declares its variables
    button: str = ""  # the code that the button of an AUTHENTICATION template copies
    body: str  # text shown by previews and the simulator
    is_answer: bool = False  # free-form reply to an inbound text, sent without a template


CONTENT_TYPE_BY_CHANNEL: dict[str, type[EmailContent | SmsContent | WhatsappContent]] = {
    "email": EmailContent,
    "sms": SmsContent,
    "whatsapp": WhatsappContent,
}
