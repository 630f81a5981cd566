"""What somebody wrote in a reply, without the mail that it quotes: as Gmail, Outlook, Apple Mail and others quote it.

Every expression is bounded, and a line is looked at a fixed number of times.
"""

import re

READ_MAX = 256 * 1024  # characters; a reply of more is left as it is
ATTRIBUTION_LINES = 3  # over which mailers wrap "On … wrote:"
LINE_MAX = 500

# Of the block that Outlook puts before what it quotes: a line of each kind, in the words of its languages.
_LABELS = {
    "from": "from von de da van från fra od от kimden 差出人 发件人 發件者 보낸.사람",
    "sent": "sent gesendet envoyé enviado enviado.el enviada.em inviato verzonden skickat sendt wysłano отправлено "
    "date datum fecha data dato дата 送信日時 日付 发送时间 日期 보낸.날짜",
    "to": "to an à para a aan till til do кому 宛先 收件人 받는.사람",
    "subject": "subject betreff objet asunto oggetto assunto onderwerp ämne emne temat тема 件名 主题 主旨 제목",
}
_LABEL = {
    kind: re.compile(
        rf"[*_> ]{{0,4}}(?:{words.replace(' ', '|').replace('.', ' ')})[*_ ]{{0,3}}\s?[:：]", re.IGNORECASE
    )
    for kind, words in _LABELS.items()
}
_ORIGINAL = re.compile(
    r"\s{0,8}-{2,12} ?(?:original message|ursprüngliche nachricht|originalnachricht|message d'origine|message original"
    r"|mensaje original|messaggio originale|mensagem original|oorspronkelijk bericht|originalmeddelande|"
    r"wiadomość oryginalna|исходное сообщение|original-nachricht|original appointment|元のメッセージ|原始邮件|"
    r"forwarded message|reply message) ?-{2,12}\s{0,8}",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s{0,8}[_—]{10,80}\s{0,8}")
# "On 16 Nov 2026, Ann <a@b> wrote:" in the words of Gmail's and Apple's languages.
_WROTE = re.compile(
    r"on .{5,400} wrote\s?:|am .{5,400}schrieb.{0,300}:|le .{5,400} a écrit\s{0,2}:|el .{5,400} escribió\s?:"
    r"|il .{5,400} ha scritto\s?:|(?:em|a|no dia) .{5,400} escreveu\s?:|op .{5,400}(?:schreef|geschreven).{0,300}:"
    r"|den .{5,400}skrev.{0,300}:|.{5,400} napisał(?:\(a\)|a)?\s?:|.{5,400} (?:пишет|написал(?:\(а\)|а)?)\s?:"
    r"|[0-9]{4}[年/].{5,400}(?:のメール|[>＞])\s?[:：]|.{2,400}于.{5,200}写道\s?[:：]|.{5,300}님이 작성\s?:",
    re.IGNORECASE,
)
_NAMED = re.compile(r"[0-9]{1,4}[:年./-][0-9]{1,2}|@")  # a time, a date or an address
# Where mailers put what they quote in HTML.
_QUOTED_HTML = re.compile(
    r"<(?:div|blockquote|hr|span|table)\b[^<>]{0,300}(?:gmail_quote|yahoo_quoted|moz-cite-prefix|appendonsend|divRplyFwdMsg"
    r"|OutlookMessageHeader|protonmail_quote|zmail_extra|tutanota_quote|type=[\"']?cite)"
    r"|<div\b[^<>]{0,200}border-top:\s?solid #(?:E1E1E1|B5C4DF) 1\.0pt",
    re.IGNORECASE,
)


def reply_html(html: str) -> str:
    """Cut the HTML where what its sender wrote ends."""
    found = _QUOTED_HTML.search(html, 0, READ_MAX)
    return html[: found.start()] if found else html


def reply_text(text: str) -> str:
    """Leave out quoted lines; answers between them stay. A mail
    that only quotes stays whole: it is better than nothing.
    """
    if len(text) > READ_MAX:
        return text
    lines = text.split("\n")
    lines = lines[: _block_start(lines)]
    kept = _unquoted(lines)
    said = "\n".join(kept).strip()
    return said or text.strip()


def _block_start(lines: list[str]) -> int:
    """Find where what is quoted as a block begins: all after it is quoted."""
    for i, line in enumerate(lines):
        if len(line) > LINE_MAX:
            continue
        if _ORIGINAL.fullmatch(line):
            return i
        if _LABEL["from"].match(line) and _is_block(lines[i + 1 : i + 7]):
            before = i
            while before and (not lines[before - 1].strip() or _RULE.fullmatch(lines[before - 1][:LINE_MAX])):
                before -= 1
            return before
    return len(lines)


def _is_block(after: list[str]) -> bool:
    kinds = {kind for line in after for kind in ("sent", "to", "subject") if _LABEL[kind].match(line[:LINE_MAX])}
    return len(kinds) >= 2


def _unquoted(lines: list[str]) -> list[str]:
    kept: list[str] = []
    i = 0
    while i < len(lines):
        if lines[i].startswith(">"):
            i += 1
            continue
        if end := _attribution_end(lines, i):
            if not _quotes_follow(lines, end):
                break  # of HTML, which has no marks: the rest is quoted
            i = end
            continue
        kept.append(lines[i])
        i += 1
    return kept


def _attribution_end(lines: list[str], start: int) -> int:
    """Return the line after "On … wrote:" when that starts here, else 0."""
    if not lines[start].strip():
        return 0
    for count in range(1, ATTRIBUTION_LINES + 1):
        some = lines[start : start + count]
        if len(some) < count or not some[-1].strip() or some[-1].startswith(">"):
            return 0
        joined = " ".join(line.strip() for line in some)
        if len(joined) > LINE_MAX * 2:
            return 0
        if joined.endswith((":", "：")):
            is_named = _NAMED.search(joined)
            is_before_quotes = count == 1 and _quotes_follow(lines, start + 1)
            if (is_named or is_before_quotes) and _WROTE.fullmatch(joined):
                return start + count
            if is_before_quotes and "@" in joined:
                return start + count
    return 0


def _quotes_follow(lines: list[str], at: int) -> bool:
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at < len(lines) and lines[at].startswith(">")
