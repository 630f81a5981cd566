"""Extracts what the author of a reply wrote, without the quoted mail, for Gmail, Outlook, Apple Mail and others.

All regular expressions are bounded, and each line is examined a fixed number of times. In doubt a line is kept, because
missing text is worse than part of a quotation.
"""

import re

READ_MAX = 256 * 1024  # maximum characters; a longer reply is returned unchanged
ATTRIBUTION_LINES = 3  # maximum lines of an attribution ("On … wrote:"), which mail clients wrap
BLOCK_LINES = 8  # maximum lines of the header block before a quoted mail
LINE_MAX = 500

# labels of the header block before a quoted mail in Outlook, by field and in several languages
_LABELS = {
    kind: "|".join(words.split()).replace(".", " ")
    for kind, words in {
        "sender": """from von de da van från fra od от kimden 差出人 发件人 發件人 發件者 寄件者 보낸.사람 lähettäjä
        feladó de.la από від šalje từ dari""",
        "sent": """sent gesendet envoyé envoyé.le enviado enviado.el enviada.em inviato verzonden skickat sendt wysłano
        отправлено date datum fecha data dato дата 送信日時 日付 发送时间 發送時間 寄件日期 日期 보낸.날짜 lähetetty
        päivämäärä gönderildi gönderilen tarih odesláno odoslané elküldve dátum trimis dată στάλθηκε ημερομηνία
        надіслано изпратено poslano đã.gửi ngày dikirim""",
        "to": """to an à para a aan till til do кому 宛先 收件人 收件者 받는.사람 vastaanottaja saaja kime alıcı komu
        címzett către προς до prima tới kepada""",
        "subject": """subject betreff objet asunto oggetto assunto onderwerp ämne emne temat тема 件名 主题 主題 主旨
        제목 aihe konu předmět predmet tárgy subiect θέμα относно chủ.đề subjek""",
        "copy": "cc kopie copie copia kopia kopi копия копія 抄送 副本 참조",
    }.items()
}
_HEADER_LABEL = re.compile(
    rf"[*_> ]{{0,8}}(?:{'|'.join(f'(?P<{kind}>{words})' for kind, words in _LABELS.items())})[*_ ]{{0,3}}\s?[:：]",
    re.IGNORECASE,
)
_ORIGINAL_SEPARATOR = re.compile(
    r"\s{0,8}-{2,40} ?(?:original message|original|ursprüngliche nachricht|originalnachricht|original-nachricht"
    r"|message d'origine|message original|mensaje original|messaggio originale|mensagem original|oorspronkelijk bericht"
    r"|originalmeddelande|ursprungligt meddelande|oprindelig (?:besked|meddelelse)|opprinnelig melding"
    r"|wiadomość oryginalna|oryginalna wiadomość|исходное сообщение|оригінальне повідомлення|původní zpráva"
    r"|pôvodná správa|eredeti üzenet|mesaj original|orijinal mesaj|alkuperäinen viesti|αρχικό μήνυμα"
    r"|元のメッセージ|原始邮件|原始郵件|원본 메시지"
    r"|original appointment|forwarded message|reply message) ?-{2,40}\s{0,8}",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s{0,8}(?:[_—]{10,80}|-{8,80})\s{0,8}")
# "On 16 Nov 2026, Ann <a@b> wrote:" in the languages of Gmail and Apple Mail.
_ATTRIBUTION = re.compile(
    r"on .{5,400} wrote\s?:|am .{5,400}schrieb.{0,300}:|le .{5,400} a écrit\s{0,2}:|el .{5,400} escribió\s?:"
    r"|il .{5,400} ha scritto\s?:|(?:em|a|no dia) .{5,400} escreveu\s?:|op .{5,400}(?:schreef|geschreven).{0,300}:"
    r"|den .{5,400}skrev.{0,300}:|(?:w dniu|dnia) .{5,400} (?:pisze|napisał(?:\(a\)|a)?)\s?:",
    re.IGNORECASE,
)
# "wrote" in other languages, for attributions with a date; some match inflected forms
_WROTE_VERB = re.compile(
    r"\b(?:wrote|schrieb|geschrieben|a écrit|escribió|escreveu|ha scritto|schreef|geschreven|skrev|kirjoitti|pisze"
    r"|napisał\w?|napisana przez|napsal\w?|napísal\w?|napisa[ol]\w? ?(?:je)?|írta|a scris"
    r"|написал?\w?|пишет|пише|έγραψε|yazdı"
    r"|rašė|rakstīja|kirjutas|đã viết|menulis|skrifaði)\b|写道|寫道|작성|쓴 글|のメール|のメッセージ|เขียนว่า|كتب|כתב",
    re.IGNORECASE,
)
_ZOHO_ATTRIBUTION = re.compile(r"-{3,8} ?on .{5,300} wrote ?-{3,8}|on .{5,200}@.{3,100} wrote", re.IGNORECASE)
# Start of an attribution without an address: a date, a weekday, or the preposition before them
_ATTRIBUTION_START = re.compile(
    r"\d|[^\W\d_]{1,12}[.,] |(?:on|am|le|el|il|em|op|den|at|dne|dnia|w dniu|în|на|στις|på) .{0,14}\d|在"
    r"|[^\s]{1,40} kirjoitti \d",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?<!\d)\d{4}(?!\d)|\d{1,4}[./\-年년] ?\d{1,2}[./\-月월] ?\d{1,4}")
_TIME = re.compile(r"\d{1,2} ?[:.時时] ?\d{2}")
_ADDRESS = re.compile(r"[^\s<>()\"]{1,64}@[^\s<>()\"]{1,255}[>)]{0,2}")
_LAST_ADDRESS = re.compile(r"@[^\s<>()\":：]{1,255}[>)]{0,2}\s?[:：]\Z")
# end of an address and of the attribution after it
_WRAPPED_ADDRESS_END = re.compile(r">\s?(?:[^\s>]{1,12}\s?){0,3}[:：]\s{0,3}")
_SENTENCE_END = re.compile(r"[^\W\d_]{4}[.…]\Z|[!?]\Z")
_DIRECTION_MARKS = str.maketrans("", "", "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# elements around the quoted mail in HTML, by mail client
_QUOTED_HTML = re.compile(
    r"<(?:div|blockquote|hr|span|table)\b[^<>]{0,300}(?:gmail_quote|yahoo_quoted|moz-cite-prefix|appendonsend|divRplyFwdMsg"
    r"|OutlookMessageHeader|protonmail_quote|zmail_extra|tutanota_quote|type=[\"']?cite|isReplyContent|name=[\"']?quote\b"
    r"|reference-message|messageReplySection)|<div\b[^<>]{0,200}border-top:\s?solid #(?:E1E1E1|B5C4DF) 1\.0pt",
    re.IGNORECASE,
)
_BLOCKQUOTE = re.compile(r"<(/?)blockquote\b[^<>]{0,1000}>", re.IGNORECASE)
# attributes of a blockquote with a quoted mail; blockquotes without them only indent text
_CITATION_ATTRIBUTE = re.compile(r"type=[\"']?cite|gmail_quote|border-left:[^;\"']{0,20}solid", re.IGNORECASE)
_QUOTE_PLACEHOLDER = "<p>&gt;</p>"  # takes the place of a removed quotation


def reply_html(html: str) -> str:
    """Return the HTML with quotations replaced by a placeholder, and without a quoted mail at the end."""
    if len(html) > READ_MAX:
        match = _QUOTED_HTML.search(html, 0, READ_MAX)
        return html[: match.start()] if match else html
    html = _replace_quotations(html)
    match = _QUOTED_HTML.search(html)
    return html[: match.start()] if match and _QUOTE_PLACEHOLDER not in html[match.start() :] else html


def _replace_quotations(html: str) -> str:
    """Replace outermost blockquotes of mail clients with a placeholder; keep the author's blockquotes."""
    parts: list[str] = []
    position = depth = 0
    quote_match = _QUOTED_HTML.search(html)
    for tag in _BLOCKQUOTE.finditer(html):
        if depth:
            depth += -1 if tag[1] else 1
            position = tag.end() if not depth else position
        elif not tag[1] and (_CITATION_ATTRIBUTE.search(tag[0]) or (quote_match and quote_match.start() < tag.start())):
            parts += [html[position : tag.start()], _QUOTE_PLACEHOLDER]
            depth, position = 1, len(html)
    return "".join([*parts, html[position:]])


def reply_text(text: str) -> str:
    """Return the text without quoted lines; unchanged if all lines are quoted."""
    if len(text) > READ_MAX:
        return text
    lines = text.split("\n")
    reply = "\n".join(_remove_quotes(lines[: _quoted_mail_start(lines)])).strip()
    return reply or text.strip()


def _quoted_mail_start(lines: list[str]) -> int:
    """Return the index of the first line of the quoted mail that ends the text; `len(lines)` if there is none."""
    kinds = [_field_kind(line) for line in lines]
    for i, line in enumerate(lines):
        if len(line) <= LINE_MAX and _ORIGINAL_SEPARATOR.fullmatch(line):
            return _index_before_rule(lines, i)
        block = slice(i, i + BLOCK_LINES)
        if kinds[i] in ("sender", "sent") and _is_header_block(kinds[block], lines[block]):
            return _index_before_rule(lines, i)
    return len(lines)


def _field_kind(line: str) -> str | None:
    """Return the kind of the mail header field on a line; None if the line has none."""
    match = _HEADER_LABEL.match(line) if len(line) <= LINE_MAX else None
    return match.lastgroup if match else None


def _index_before_rule(lines: list[str], index: int) -> int:
    while index and (not lines[index - 1].strip() or _RULE.fullmatch(lines[index - 1][:LINE_MAX])):
        index -= 1
    return index


def _is_header_block(kinds: list[str | None], lines: list[str]) -> bool:
    """Return whether these lines are a mail's header block: a sender, two other fields, and an address or a subject."""
    is_mail = "subject" in kinds or any("@" in line for line, kind in zip(lines, kinds, strict=True) if kind)
    return "sender" in kinds and len({"sent", "to", "subject"}.intersection(kinds)) >= 2 and is_mail


def _remove_quotes(lines: list[str]) -> list[str]:
    unquoted: list[str] = []
    i = 0
    while i < len(lines):
        if lines[i].startswith(">"):
            i += 1
            continue
        if end := _attribution_end(lines, i):
            _drop_trailing_fields(unquoted)
            if not _quotes_follow(lines, end):
                break  # all the rest is quoted; it has no quote marks if the text was converted from HTML
            i = end
            continue
        unquoted.append(lines[i])
        i += 1
    return unquoted


def _drop_trailing_fields(lines: list[str]) -> None:
    """Remove the separator line and the recipient and subject lines that Yandex writes before its attribution."""
    index = len(lines)
    while index and _field_kind(lines[index - 1]) in ("to", "subject", "copy"):
        index -= 1
    if index < len(lines) and index and _RULE.fullmatch(lines[index - 1][:LINE_MAX]):
        del lines[index - 1 :]


def _attribution_end(lines: list[str], start: int) -> int:
    """Return the index of the line after an attribution ("On … wrote:") that begins at `start`; 0 if there is none."""
    if not lines[start].strip():
        return 0
    for count in range(1, ATTRIBUTION_LINES + 1):
        candidate = lines[start : start + count]
        if (
            len(candidate) < count
            or not candidate[-1].strip()
            or (candidate[-1].startswith(">") and not _WRAPPED_ADDRESS_END.fullmatch(candidate[-1]))
        ):
            return 0
        if sum(map(len, candidate)) > LINE_MAX * 2:
            return 0
        if candidate[-1].translate(_DIRECTION_MARKS).rstrip().endswith((":", "：", "--", "wrote")):
            return start + count if _is_attribution(lines, start, candidate) else 0
        if _SENTENCE_END.search(candidate[-1].rstrip()) or not re.search(r"[\d@]", candidate[0]):
            return 0  # an attribution would have its date or address in the first line
    return 0


def _is_attribution(lines: list[str], start: int, candidate: list[str]) -> bool:
    """Return whether the lines `candidate` are an attribution.

    False if the author wrote the first lines, and only the later lines are an attribution.
    """
    joined = _join_lines(candidate)
    has_quote_after = _quotes_follow(lines, start + len(candidate))
    suffixes = [_join_lines(candidate[n:]) for n in range(1, len(candidate))]
    if any(_ATTRIBUTION.fullmatch(suffix) and _is_dated(suffix) for suffix in suffixes):
        return False
    if _ATTRIBUTION.fullmatch(joined) and (
        _is_dated(joined) or (len(candidate) == 1 and has_quote_after) or (has_quote_after and "@" in joined)
    ):
        return has_quote_after or _TIME.search(joined) is not None or "@" in joined
    if any(_is_dated(suffix) for suffix in suffixes):
        return False
    return _is_dated(joined) or (has_quote_after and len(candidate) == 1 and _LAST_ADDRESS.search(joined) is not None)


def _is_dated(joined: str) -> bool:
    """Return whether the joined lines are an attribution with date, time and author, even without "wrote"."""
    if _ZOHO_ATTRIBUTION.fullmatch(joined) and _TIME.search(joined):
        return True
    if not (joined.endswith((":", "：")) and _DATE.search(joined) and _TIME.search(joined)):
        return False
    if _LAST_ADDRESS.search(joined):
        return True
    return (_ADDRESS.search(joined) or _ATTRIBUTION_START.match(joined)) is not None and (
        _WROTE_VERB.search(joined) is not None or (_ADDRESS.search(joined) is not None and joined.count("@") == 1)
    )


def _join_lines(lines: list[str]) -> str:
    return " ".join(line.translate(_DIRECTION_MARKS).strip() for line in lines)


def _quotes_follow(lines: list[str], index: int) -> bool:
    while index < len(lines) and not lines[index].strip():
        index += 1
    return index < len(lines) and lines[index].startswith(">")
