"""Parses the text of bounce notices: finds reply codes, and whether the failure is final."""

import re

import msgspec

from heliograph.inbound.policy.bounce_classifier import ADDRESS, TEXT_MAX, URL
from heliograph.inbound.policy.mail_parts import Fields, read_fields

EXCERPT_MAX = 400  # maximum characters around a reply code

# Where a notice without MIME quotes the original mail: at a separator line, or at the original's first header fields.
# The prefix is possessive, because backtracking would read each line of dashes and arrows eighty times.
_ORIGINAL_START = re.compile(
    r"""^[\s\-=_*|>+]{0,80}+(?:
        (?:below\ this\ line|enclosed|included|attached|this|below|here)\ is\ (?:a|the)\ (?:copy|original|message)
      | (?:the\ )?(?:start\ of\ |copy\ of\ )?(?:the\ |your\ )?(?:original|returned|unsent|undelivered|old)
        \ (?:message|mail)(?:\ (?:text|headers?|info|as|received|is|follows?|included|attached|below)){0,4}
        [\s\-=_*|:.]{0,80}$
      | (?:the\ )?headers?\ (?:of|from)\ (?:the|your)\ (?:original|message)
      | message\ (?:text|headers?|body|contents?)\ follows?
      | a\ copy\ of\ (?:the|your)\ (?:original\ )?message
      | (?<=[-\s])(?:元のメール|原文|Ursprüngliche\ Nachricht|Message\ d'origine|Mensaje\ original)
    )
    | ^>?[ ]?(?:received|return-path|x-received|dkim-signature|arc-seal|delivered-to|x-originating-ip)[ \t]*:
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)

# the subject of our mail, quoted in a notice; it may contain any text
_QUOTED_SUBJECT = re.compile(
    r"^.{0,40}\b(?:subject|betreff|objet|asunto|oggetto|assunto|件名|тема)[ \t]{0,3}[:：].*$",
    re.IGNORECASE | re.MULTILINE,
)
_ADDRESS_OR_URL = re.compile(f"{URL.pattern}|{ADDRESS.pattern}", re.IGNORECASE)

_CODE = r"(?<![0-9A-Za-z.\-_/#])([45][0-5][0-9])"
_ENHANCED = r"([45]\.[0-7]\.[0-9]{1,3})(?![0-9A-Za-z_]|\.[0-9])"
_CODE_PAIR = re.compile(rf"{_CODE}[ \t:\-]{{1,3}}(?:[45][0-5][0-9][ \-])?['\"(\[#]{{0,2}}{_ENHANCED}")
_LONE_ENHANCED = re.compile(rf"(?<![0-9A-Za-z.\-_/]){_ENHANCED}")
_LONE_CODE = re.compile(
    r"(?<![0-9A-Za-z.\-_/#=])(4(?:21|3[0-2]|4[1-7]|5[0-59]|71)|5(?:0[0-4]|1[0-5]|2[13]|3[0-8]|4[0-6]|5[0-9]|7[01]))"
    r"(?=[\s\-:,;.'\")\]]|\Z)(?!\s+(?:bytes|[kmg]i?b|hours?|minutes?|seconds?|days?)\b)(?!\.[0-9])"
)


class Codes(msgspec.Struct, frozen=True, kw_only=True):
    code: str | None = None
    enhanced: str | None = None
    excerpt: str = ""  # text around the codes


_WORD = r"(?:[^\s:;!?]{0,40}[^\s.,:;!?] )"  # another word of the same sentence

_FINAL = re.compile(
    rf"permanent(?:ly)?[ -]{_WORD}?(?:error|fail|fatal|problem|undeliver|reject)|failed permanently|\(failure\)"
    rf"|(?:fatal|unrecoverable) {_WORD}?errors?|no further {_WORD}?attempts?|will not be retried|dauerhaft|définiti"
    rf"|永久|постоянн",
    re.IGNORECASE,
)
_STILL_TRYING = re.compile(
    rf"(?:has been|is|was|been|been temporarily|message) delayed|delayed (?:mail|deliver|[0-9]+)|\(delay(?:ed)?\)"
    rf"|delivery delay|warning (?:message )?only|(?:do|does)(?:n.t| not) need to re-?send"
    rf"|(?:will|to) be (?:re-?tried|attempted)|will (?:keep|continue|be) (?:on )?(?:to )?try|attempts? will continue"
    rf"|still (?:being retried|trying|in the queue|queued)"
    rf"|will {_WORD}{{0,2}}(?:try|attempt)(?:ing)? {_WORD}{{0,4}}(?:again|until|for)|not yet (?:been )?delivered"
    rf"|not been delivered yet|temporary failure report|for more than \S+ (?:minutes|hours)\b"
    rf"|could not send {_WORD}{{0,2}}for (?:the )?past|no action is required on your part"
    rf"|remains? in (?:the|our) (?:mail )?queue"
    r"|遅延|再送を試み|verzögert|retardé|en retard|demorad|retrasad|ritardat|atrasad|задерж|отложен|延迟",
    re.IGNORECASE,
)
_GAVE_UP = re.compile(
    r"not going to try again|giving up|given up|will be deleted from|(?:mail|message) has been (?:returned|removed)",
    re.IGNORECASE,
)
# the server rejected the sender or HELO, before the recipient was sent
_SENDER_REJECTED = re.compile(
    r">>> ?mail from|after (?:mail from|helo|ehlo)|in reply to (?:mail from|helo|ehlo)|\[mail_from\]"
    r"|but (?:sender|my name) was rejected",
    re.IGNORECASE,
)
_RETURN_NOTICE = re.compile(
    rf"(?:could|can|was|were|has|have|did|is)(?:n.?t| ?not) {_WORD}{{0,3}}(?:deliver|reach|sent|send|accepted|transmit)"
    rf"|un-?deliver|(?:un|not )able to (?:be )?(?:deliver|send)|fail\w* (?:notice|mail|address|recipient|reasons)"
    rf"|encountered an error|\bbounced?\b"
    rf"|deliver\S{{0,20}} {_WORD}{{0,9}}(?:fail|abort|error|problem|unsuccess|reject)|non-?deliver"
    rf"|(?:mail|message) {_WORD}?fail"
    rf"|(?:fail|error|problem|trouble)\w* {_WORD}{{0,4}}(?:deliver|send)|mail system error|transcript of session"
    rf"|not a member"
    rf"|return(?:ed|ing) {_WORD}{{0,3}}(?:mail|message|to sender)|returned (?:mail|message|to sender)|delivery status"
    rf"|(?:addresse?s?|recipients?) {_WORD}{{0,4}}(?:fail|had|rejected)|no se pudo"
    r"|(?:送信|配信|配達|お届け).{0,8}(?:でき|失敗|不能)|エラーメール|unzustellbar"
    r"|nicht (?:zugestellt|ausgeliefert|übermittelt)"
    rf"|n.a pas (?:pu )?{_WORD}?(?:être )?(?:remis|délivr|distribu|transmis)|non remis|échec"
    rf"|impossible de (?:remettre|délivrer)"
    rf"|não {_WORD}{{0,3}}entreg|no {_WORD}{{0,3}}entreg|impossibile (?:recapitare|consegnare)"
    rf"|mancat[ao] (?:recapito|consegna)|не {_WORD}{{0,4}}доставлен|недоставлен|не удалось"
    rf"|无法(?:投递|送达|发送)|退信|投递失败|niet {_WORD}{{0,3}}(?:bezorgd|afgeleverd)",
    re.IGNORECASE,
)


def notice_text(text: str) -> str:
    """Return the text of the notice, without the copy of the original mail after it."""
    match = _ORIGINAL_START.search(text)
    notice = text[: match.start()] if match else text
    return _QUOTED_SUBJECT.sub("", notice if notice.strip() else text)[:TEXT_MAX]


def original_fields(text: str) -> Fields:
    """Return the header fields in the copy of the original mail after the notice."""
    match = _ORIGINAL_START.search(text)
    return read_fields(text[match.start() :][:TEXT_MAX]) if match else {}


def read_codes(text: str) -> Codes:
    """Return the most specific SMTP reply code and enhanced code, preferably two that stand next to each other."""
    masked = _ADDRESS_OR_URL.sub(lambda match: "@" * len(match[0]), text)
    pairs = list(_CODE_PAIR.finditer(masked))
    if pairs:
        pair = next((pair for pair in pairs if not is_vague_status(pair[2])), pairs[0])
        return Codes(code=pair[1], enhanced=pair[2], excerpt=_excerpt(text, pair))
    enhanced = list(_LONE_ENHANCED.finditer(masked))
    best = next((match for match in enhanced if not is_vague_status(match[1])), enhanced[0] if enhanced else None)
    code = _LONE_CODE.search(masked)
    if code:
        return Codes(code=code[1], enhanced=best[1] if best else None, excerpt=_excerpt(text, code))
    # the text before the code is included, because such a code often ends a sentence: `no such mailbox. (#5.1.1)`
    return Codes(enhanced=best[1], excerpt=_excerpt(text, best, EXCERPT_MAX // 2)) if best else Codes()


def is_vague_status(status: str) -> bool:
    """Return whether an enhanced code has only a class, such as `5.0.0`."""
    return status.endswith(".0.0")


def says_permanent(text: str) -> bool:
    return bool(_FINAL.search(" ".join(text.split())))


def is_sender_rejected(text: str) -> bool:
    return bool(_SENDER_REJECTED.search(" ".join(text.split())))


def says_still_trying(text: str) -> bool:
    line = " ".join(text.split())
    return bool(_STILL_TRYING.search(line)) and not _GAVE_UP.search(line)


def says_undelivered(text: str) -> bool:
    return bool(_RETURN_NOTICE.search(" ".join(ADDRESS.sub("@", text).split())))


def _excerpt(text: str, match: re.Match[str], chars_before: int = 0) -> str:
    """Return the rest of the paragraph from a status code on, as one line.

    The excerpt ends before the line that names a second address. `chars_before`: maximum characters before the code.
    """
    start = max(match.start() - chars_before, 0)
    start = max(text.rfind("\n\n", start, match.start()), start)
    excerpt_lines, addresses = list[str](), set[str]()
    for line in text[start : match.start() + EXCERPT_MAX].strip().partition("\n\n")[0].split("\n"):
        addresses |= set(ADDRESS.findall(line))
        if len(addresses) > 1 and excerpt_lines:
            break
        excerpt_lines.append(line)
    return " ".join(" ".join(excerpt_lines).split())
