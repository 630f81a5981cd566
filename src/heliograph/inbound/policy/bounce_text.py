"""Parses the text of bounce notices: reply codes, and whether the failure is final."""

import re

import msgspec

from heliograph.inbound.policy.bounce_classifier import ADDRESS, URL, WORDS_MAX
from heliograph.inbound.policy.mail_parts import Fields, read_fields

EXCERPT = 400  # characters after a reply code that belong to it

# Start of the copied original in a notice without MIME: a separator line, or its first header fields. The prefix is
# possessive, because backtracking would read each line of dashes and arrows eighty times.
_ORIGINAL = re.compile(
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

# A notice quotes the subject of our mail, which may contain any text.
_QUOTED_SUBJECT = re.compile(
    r"^.{0,40}\b(?:subject|betreff|objet|asunto|oggetto|assunto|件名|тема)[ \t]{0,3}[:：].*$",
    re.IGNORECASE | re.MULTILINE,
)
_ADDRESS_OR_URL = re.compile(f"{URL.pattern}|{ADDRESS.pattern}", re.IGNORECASE)

_CODE = r"(?<![0-9A-Za-z.\-_/#])([45][0-5][0-9])"
_ENHANCED = r"([45]\.[0-7]\.[0-9]{1,3})(?![0-9A-Za-z_]|\.[0-9])"
_PAIR = re.compile(rf"{_CODE}[ \t:\-]{{1,3}}(?:[45][0-5][0-9][ \-])?['\"(\[#]{{0,2}}{_ENHANCED}")
_LONE_ENHANCED = re.compile(rf"(?<![0-9A-Za-z.\-_/]){_ENHANCED}")
_LONE_CODE = re.compile(
    r"(?<![0-9A-Za-z.\-_/#=])(4(?:21|3[0-2]|4[1-7]|5[0-59]|71)|5(?:0[0-4]|1[0-5]|2[13]|3[0-8]|4[0-6]|5[0-9]|7[01]))"
    r"(?=[\s\-:,;.'\")\]]|\Z)(?!\s+(?:bytes|[kmg]i?b|hours?|minutes?|seconds?|days?)\b)(?!\.[0-9])"
)


class Codes(msgspec.Struct, frozen=True, kw_only=True):
    code: str | None = None
    enhanced: str | None = None
    excerpt: str = ""  # text around the codes


_W = r"(?:[^\s:;!?]{0,40}[^\s.,:;!?] )"  # one more word of the same sentence

_FINAL = re.compile(
    rf"permanent(?:ly)?[ -]{_W}?(?:error|fail|fatal|problem|undeliver|reject)|failed permanently|\(failure\)"
    rf"|(?:fatal|unrecoverable) {_W}?errors?|no further {_W}?attempts?|will not be retried|dauerhaft|définiti|永久"
    rf"|постоянн",
    re.IGNORECASE,
)
_STILL_TRYING = re.compile(
    rf"(?:has been|is|was|been|been temporarily|message) delayed|delayed (?:mail|deliver|[0-9]+)|\(delay(?:ed)?\)"
    rf"|delivery delay|warning (?:message )?only|(?:do|does)(?:n.t| not) need to re-?send"
    rf"|(?:will|to) be (?:re-?tried|attempted)"
    rf"|will (?:keep|continue|be) (?:on )?(?:to )?try|attempts? will continue"
    rf"|still (?:being retried|trying|in the queue|queued)"
    rf"|will {_W}{{0,2}}(?:try|attempt)(?:ing)? {_W}{{0,4}}(?:again|until|for)|not yet (?:been )?delivered"
    rf"|not been delivered yet|temporary failure report|for more than \S+ (?:minutes|hours)\b"
    rf"|could not send {_W}{{0,2}}for (?:the )?past|no action is required on your part"
    rf"|remains? in (?:the|our) (?:mail )?queue"
    r"|遅延|再送を試み|verzögert|retardé|en retard|demorad|retrasad|ritardat|atrasad|задерж|отложен|延迟",
    re.IGNORECASE,
)
_GAVE_UP = re.compile(
    r"not going to try again|giving up|given up|will be deleted from|(?:mail|message) has been (?:returned|removed)",
    re.IGNORECASE,
)
# The server rejected before it knew the recipient.
_AT_SENDER = re.compile(
    r">>> ?mail from|after (?:mail from|helo|ehlo)|in reply to (?:mail from|helo|ehlo)|\[mail_from\]"
    r"|but (?:sender|my name) was rejected",
    re.IGNORECASE,
)
_RETURNS = re.compile(
    rf"(?:could|can|was|were|has|have|did|is)(?:n.?t| ?not) {_W}{{0,3}}(?:deliver|reach|sent|send|accepted|transmit)"
    rf"|un-?deliver|(?:un|not )able to (?:be )?(?:deliver|send)|fail\w* (?:notice|mail|address|recipient|reasons)"
    rf"|encountered an error"
    rf"|\bbounced?\b"
    rf"|deliver\S{{0,20}} {_W}{{0,9}}(?:fail|abort|error|problem|unsuccess|reject)|non-?deliver"
    rf"|(?:mail|message) {_W}?fail"
    rf"|(?:fail|error|problem|trouble)\w* {_W}{{0,4}}(?:deliver|send)|mail system error|transcript of session"
    rf"|not a member"
    rf"|return(?:ed|ing) {_W}{{0,3}}(?:mail|message|to sender)|returned (?:mail|message|to sender)|delivery status"
    rf"|(?:addresse?s?|recipients?) {_W}{{0,4}}(?:fail|had|rejected)|no se pudo"
    r"|(?:送信|配信|配達|お届け).{0,8}(?:でき|失敗|不能)|エラーメール|unzustellbar"
    r"|nicht (?:zugestellt|ausgeliefert|übermittelt)"
    rf"|n.a pas (?:pu )?{_W}?(?:être )?(?:remis|délivr|distribu|transmis)|non remis|échec"
    rf"|impossible de (?:remettre|délivrer)"
    rf"|não {_W}{{0,3}}entreg|no {_W}{{0,3}}entreg|impossibile (?:recapitare|consegnare)"
    rf"|mancat[ao] (?:recapito|consegna)"
    rf"|не {_W}{{0,4}}доставлен|недоставлен|не удалось|无法(?:投递|送达|发送)|退信|投递失败"
    rf"|niet {_W}{{0,3}}(?:bezorgd|afgeleverd)",
    re.IGNORECASE,
)


def own_words(text: str) -> str:
    """Return the notice without the copied original after it."""
    found = _ORIGINAL.search(text)
    notice = text[: found.start()] if found else text
    return _QUOTED_SUBJECT.sub("", notice if notice.strip() else text)[:WORDS_MAX]


def copied_fields(text: str) -> Fields:
    """Return the header fields of the copied original after the notice."""
    found = _ORIGINAL.search(text)
    return read_fields(text[found.start() :][:WORDS_MAX]) if found else {}


def read_codes(text: str) -> Codes:
    """Return the most specific reply code and enhanced code: a pair if present, else each separately."""
    masked = _ADDRESS_OR_URL.sub(lambda found: "@" * len(found[0]), text)
    pairs = list(_PAIR.finditer(masked))
    if pairs:
        pair = next((pair for pair in pairs if not is_vague(pair[2])), pairs[0])
        return Codes(code=pair[1], enhanced=pair[2], excerpt=_excerpt(text, pair))
    enhanced = list(_LONE_ENHANCED.finditer(masked))
    best = next((found for found in enhanced if not is_vague(found[1])), enhanced[0] if enhanced else None)
    code = _LONE_CODE.search(masked)
    if code:
        return Codes(code=code[1], enhanced=best[1] if best else None, excerpt=_excerpt(text, code))
    # An enhanced code alone often ends the sentence: `no mailbox here by that name. (#5.1.1)`.
    return Codes(enhanced=best[1], excerpt=_excerpt(text, best, EXCERPT // 2)) if best else Codes()


def is_vague(status: str) -> bool:
    """Return whether a status has only a class: `5.0.0` is no more specific than `5`."""
    return status.endswith(".0.0")


def says_final(text: str) -> bool:
    return bool(_FINAL.search(" ".join(text.split())))


def is_at_sender(text: str) -> bool:
    return bool(_AT_SENDER.search(" ".join(text.split())))


def says_still_trying(text: str) -> bool:
    words = " ".join(text.split())
    return bool(_STILL_TRYING.search(words)) and not _GAVE_UP.search(words)


def says_returned(text: str) -> bool:
    return bool(_RETURNS.search(" ".join(ADDRESS.sub("@", text).split())))


def _excerpt(text: str, found: re.Match[str], before: int = 0) -> str:
    """Return the paragraph from the code on, up to the next recipient."""
    start = max(found.start() - before, 0)
    start = max(text.rfind("\n\n", start, found.start()), start)
    kept, named = list[str](), set[str]()
    for line in text[start : found.start() + EXCERPT].strip().partition("\n\n")[0].split("\n"):
        named |= set(ADDRESS.findall(line))
        if len(named) > 1 and kept:
            break
        kept.append(line)
    return " ".join(" ".join(kept).split())
