"""What people and servers write about a failed delivery: reply codes, reasons, and whether it is final.

Reasons are phrases, not servers: most systems say one of a few things in one of a few ways.
"""

import re

import msgspec

WORDS_MAX = 8000  # characters of a notice that are searched
EXCERPT = 400  # characters after a reply code that belong to it

# Where the copy of the original begins in a notice without MIME: a line that says so, or its first fields.
_ORIGINAL = re.compile(
    r"""^[\s\-=_*|>+]{0,80}(?:
        (?:below\ this\ line|enclosed|included|attached|this|below|here)\ is\ (?:a|the)\ (?:copy|original|message)
      | (?:the\ )?(?:start\ of\ |copy\ of\ )?(?:the\ |your\ )?(?:original|returned|unsent|undelivered|old)
        \ (?:message|mail)(?:\ (?:text|headers?|info|as|received|is|follows?|included|attached|below)){0,4}
        [\s\-=_*|:.]{0,80}$
      | (?:the\ )?headers?\ (?:of|from)\ (?:the|your)\ (?:original|message)
      | message\ (?:text|headers?|body|contents?)\ follows?
      | a\ copy\ of\ (?:the|your)\ (?:original\ )?message
      | -{2,5}\s{0,5}(?:元のメール|原文|Ursprüngliche\ Nachricht|Message\ d'origine|Mensaje\ original)
    )
    | ^>?[ ]?(?:received|return-path|x-received|dkim-signature|arc-seal|delivered-to|x-originating-ip)[ \t]*:
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)

# A notice quotes the subject of our mail, which may say anything.
_QUOTED_SUBJECT = re.compile(
    r"^.{0,40}\b(?:subject|betreff|objet|asunto|oggetto|assunto|件名|тема)[ \t]{0,3}[:：].*$",
    re.IGNORECASE | re.MULTILINE,
)
_URL = re.compile(r"\b(?:https?|ldap|mailto):\S{1,500}|\bwww\.\S{1,500}", re.IGNORECASE)
ADDRESS = re.compile(r"[^\s<>()\[\]\"',;:=|`]{1,64}@[A-Za-z0-9\-_.\x80-\U0010ffff]{1,255}")

_ADDRESS_OR_URL = re.compile(f"{_URL.pattern}|{ADDRESS.pattern}", re.IGNORECASE)

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
    excerpt: str = ""  # the words that came with them


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: bool = False  # the address itself is bad
    permanent: bool = True


def _reason(name: str, *phrases: str, address: bool = False, permanent: bool = True) -> tuple[re.Pattern[str], Reason]:
    return re.compile("|".join(phrases), re.IGNORECASE), Reason(name=name, address=address, permanent=permanent)


_W = r"(?:[^\s:;!?]{0,40}[^\s.,:;!?] )"  # one word more of the same sentence
_SOMEBODY = r"\b(?:users?|recipients?|mail ?box(?:es)?|accounts?|address(?:es|ee)?|alias|person|customer|subscriber)"
_SOMEWHERE = r"\b(?:hosts?|domains?|host ?names?|domain names?|mail servers?|mail exchangers?|mx(?: records?)?)"
_ABSENT = (
    rf"(?:unknown|not {_W}?(?:found|known|exist|recogni|listed|valid|regist|resolv)"
    rf"|(?:does|do|did)(?:n.?t| not) {_W}?exist"
    r"|n.?t be (?:found|resolved)|(?:is |are |was )?invalid|nonexistent)"
)

# The first that fits. What would only hold back one message comes before what would suppress an address.
_REASONS = [
    _reason("greylisted", r"gr[ea]y-?list", permanent=False),
    _reason(
        "mailbox_full",
        rf"\b(?:mail ?(?:box|folder|drop|dir)?|inbox|account|user|storage|disk) {_W}{{0,5}}full\b",
        rf"over (?:the |its |their |allotted )?{_W}{{0,2}}quota|overquota",
        rf"\bquota {_W}{{0,4}}(?:exceed|full|reach|violat)",
        rf"exceed\w* {_W}{{0,5}}(?:quota|storage|mailbox|disk)|(?:storage|mailbox) (?:quota|limit)",
        rf"(?:out of|not enough|insufficient) {_W}?(?:disk|mailbox|storage)? ?space",
        r"no (?:disk |storage |mailbox )?space",
        r"メールボックス.{0,20}(?:一杯|いっぱい|満杯|容量)|容量.{0,20}(?:超|不足|オーバー)",
        r"(?:postfach|speicher).{0,30}(?:voll|überschritten|erschöpft)|bo[iî]te.{0,40}(?:pleine|satur)",
        r"(?:buz[oó]n|casilla).{0,30}llen|casella.{0,30}piena|caixa.{0,30}cheia|ящик.{0,40}переполнен",
        r"邮箱.{0,8}(?:满|空间)|postvak.{0,30}vol\b",
    ),
    _reason(
        "too_large",
        rf"(?:message|mail|e-?mail|content|attachment|headers?|size)s? {_W}{{0,4}}too (?:large|big)",
        r"too (?:large|big) m",
        rf"(?:message|mail|e-?mail)(?:'s)? (?:size|length) {_W}{{0,3}}(?:exceed|limit|larger)|size limit",
        rf"exceed\w* {_W}{{0,6}}(?:size|length|maximum message)|larger than the {_W}{{0,3}}(?:limit|size)",
        r"nachricht.{0,30}zu gro(?:ß|ss)|message.{0,30}trop (?:gros|volumineux|long)|サイズ.{0,20}(?:超|大き|制限)",
    ),
    _reason(
        "loop",
        r"(?:mail|routing|forwarding) loop|looping|hop count|too many hops|\bhops\b|loops? back to|loop detected",
    ),
    _reason(
        "policy",
        r"\bspam|\bube\b|\bjunk|unsolicited|bulk mail|black-?list|block-?list|deny-?list|\bblocked|\bbanned|spoof",
        r"\brbls?\b|dnsbl|spamhaus|spamcop|\bsorbs\b|cloudmark|is listed|reputation|abus(?:e|ive)|suspicious",
        r"virus|malware|phish|infected|trojan|\bspf\b|\bdkim\b|\bdmarc\b|sender ?id\b|purported|authenticat",
        r"reverse dns|\bptr\b|\brdns\b|reverse lookup|polic(?:y|ies)|access (?:was |is )?denied|permission|privilege",
        rf"not {_W}?(?:allowed|authori[sz]ed|permitted)|unauthori[sz]ed|prohibited|forbidden|administrativ",
        rf"relay(?:ing)? {_W}{{0,2}}(?:denied|not|prohib|reject)|(?:unable|not|cannot|refus\w+) {_W}{{0,2}}to relay",
        rf"mail relay|do(?:n't| not) relay|content {_W}{{0,2}}(?:reject|denied|block|filter)",
        r"security (?:polic|reas|risk)",
        rf"\b(?:sender|originator|mail ?from|from:|helo|ehlo)(?:'s)?:? {_W}{{0,3}}"
        rf"(?:reject|{_ABSENT}|denied|refus|verif|domain)",
        r"(?:invalid|unknown|bad|missing) (?:sender|from|return|helo|ehlo)|duplicate header|header error",
        r"bare (?:lf|cr)\b",
        rf"domain of (?:the )?sender|not {_W}{{0,2}}members?\b|members? {_W}{{0,3}}(?:may|can) post|moderat",
        r"closed list",
        r"restricted|use the smtp server of|turn on smtp auth",
        r"(?:message|mail|email) (?:was |is )?(?:rejected|refused)\b",
        r"bloqu[eé]|rejet[eé]|indésirable|gesperrt|sperrliste|スパム|迷惑メール|拒否|спам|blocc|垃圾邮件|拒收",
    ),
    _reason(
        "rate",
        r"rate (?:limit|exceed)|too (?:many|much|fast)|frequency|throttl",
        rf"(?:sending|hourly|daily|connection) {_W}?limit",
        r"temporarily (?:deferred|rejected|rate)|(?:unusual|unexpected) (?:rate|volume)|limit exceeded",
        permanent=False,
    ),
    _reason(
        "lookup",
        r"not found, try again|name service error|host ?name lookup (?:failure|error)|(?:dns|name server) time",
        rf"temporary {_W}{{0,2}}(?:lookup|dns|resol)|(?:dns|mx|name) (?:query|lookup) (?:failed|error)",
        permanent=False,
    ),
    _reason(
        "unknown_user",
        rf"(?:unknown|no such|invalid|illegal|bad|non-?existent|unrecogni[sz]ed|incorrect|undefined|wrong) {_W}{{0,3}}"
        rf"(?:{_SOMEBODY}|\b(?:userid|local ?part|member))\b",
        rf"{_SOMEBODY}\W{{0,3}} ?{_W}{{0,7}}(?:{_ABSENT}|unavailable|possibly incorrect)",
        rf"no {_W}?(?:mailbox|user|account|person|recipients?) {_W}{{0,2}}(?:here|by that|with th|found|named)",
        rf"n.t have an? {_W}?account|not our (?:user|customer)|not a {_W}?(?:valid|known|registered|local)\b",
        rf"no such {_W}?here",
        r"not listed in|name is not (?:recogni|known)|no valid recipients?|unroute?able address",
        r"no one (?:here )?by that",
        rf"user {_W}?not (?:here|local)|not (?:found|known) (?:here|at this)|address (?:was )?rejected\.?$",
        r"(?:宛先|送信先|あて先|アドレス|ユーザ).{0,30}(?:存在し|見つか|不明|ありません)",
        r"(?:用户|收件人|地址|邮箱|帐号|账号).{0,12}(?:不存在|未知|无效|找不到)",
        r"(?:사용자|수신자|주소|계정).{0,20}(?:없|존재하지)",
        r"(?:empfänger|benutzer|adresse|postfach|konto).{0,50}(?:unbekannt|existiert nicht|nicht gefunden|ungültig)",
        r"(?:destinataire|utilisateur|adresse|compte|bo[iî]te).{0,50}(?:inconnu|n.existe pas|invalide|introuvable)",
        r"(?:destinat[aá]ri|usu[aá]ri|cuenta|conta|direcci[oó]n|endere[cç]o|buz[oó]n).{0,50}"
        r"(?:desconocid|desconhecid|n(?:o|ão) existe|inv[aá]lid|inexist)",
        r"(?:utente|casella|indirizzo|destinatario).{0,50}(?:sconosciut|inesistent|non esist|non valid|non trovat)",
        r"(?:пользовател|получател|адрес|ящик).{0,50}(?:не найден|не существует|неизвест|отсутств)",
        r"(?:gebruiker|ontvanger|adres|postvak).{0,40}(?:onbekend|bestaat niet)",
        address=True,
    ),
    _reason(
        "disabled",
        rf"{_SOMEBODY}\W{{0,3}} ?{_W}{{0,7}}(?:disabled|inactive|suspended|deactivated|discontinued|expired"
        r"|locked|closed|deleted|removed|terminated|cancell?ed|not active|frozen)",
        r"(?:disabled|inactive|suspended|deactivated|expired|deleted|not active) (?:user|mailbox|account|address)",
        address=True,
    ),
    _reason(
        "moved",
        rf"ha(?:s|ve) moved|no longer {_W}{{0,2}}(?:on|at|with|work|avail|valid|use|employ|accept|active|exist)",
        r"no forwarding|address (?:has |was )?(?:been )?changed|has left the",
        address=True,
    ),
    _reason(
        "unknown_host",
        rf"(?:unknown|no such|invalid|illegal|bad|no|non-?existent|any) {_W}?{_SOMEWHERE}\b",
        rf"{_SOMEWHERE}\W{{0,3}} ?{_W}{{0,5}}{_ABSENT}",
        rf"find (?:a|any) {_W}?(?:host|mail exchanger|mx|gateway|route)|nxdomain|null ?mx|no relevant answers",
        r"n.?o?t (?:accept|receive) (?:any )?e?-?mail|no route to domain|ドメイン.{0,20}(?:存在し|見つか)",
        r"domain.{0,20}(?:existiert nicht|n.existe pas|no existe|не существует)",
        address=True,
    ),
    _reason(
        "expired",
        r"expired|retry time|queue too long|in the queue|on the queue|giving up|given up|time limit|multiple retries",
        rf"could not (?:be delivered|deliver) {_W}?(?:for|within|in|after)|too many (?:retries|attempts)"
        rf"|aborted after"
        r"|max\w* retr",
        permanent=False,
    ),
    _reason(
        "unreachable",
        rf"connection {_W}{{0,2}}(?:refused|reset|closed|dropped|lost|timed|failed|aborted)|lost connection",
        r"timed? ?-?out",
        r"(?:un|not )able to (?:connect|establish|contact)|could(?:n.t| not) connect|did not accept our",
        r"not accepting",
        r"unreachable|not reachable|no route to host|socket error|refused to talk|no smtp connection|not respond",
        permanent=False,
    ),
    _reason(
        "system",
        rf"(?:service|system|resources?|server) {_W}{{0,3}}(?:unavailable|not available|busy|overload|error|full|down)",
        r"try (?:again |it again |your message )?later|temporar",
        r"insufficient (?:system )?(?:storage|resources|memory)",
        rf"internal {_W}?error|configuration error|i/o error|local error|please retry|essayer plus tard|disk full",
        r"しばらく",
        permanent=False,
    ),
]

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
    """The notice without the copy of the original that follows it."""
    found = _ORIGINAL.search(text)
    notice = text[: found.start()] if found else text
    return _QUOTED_SUBJECT.sub("", notice if notice.strip() else text)[:WORDS_MAX]


def read_codes(text: str) -> Codes:
    """The reply code and the enhanced code that matter most: together, then by themselves."""
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
    # An enhanced code by itself often closes the sentence: `no mailbox here by that name. (#5.1.1)`.
    return Codes(enhanced=best[1], excerpt=_excerpt(text, best, EXCERPT // 2)) if best else Codes()


def is_vague(status: str) -> bool:
    """`5.0.0` says no more than `5`."""
    return status.endswith(".0.0")


def read_reason(*texts: str) -> Reason | None:
    """The reason in the first text that gives one."""
    for text in texts:
        words = " ".join(_ADDRESS_OR_URL.sub("@", text[:WORDS_MAX]).split())
        for phrases, reason in _REASONS:
            if phrases.search(words):
                return reason
    return None


def says_final(text: str) -> bool:
    return bool(_FINAL.search(" ".join(text.split())))


def says_still_trying(text: str) -> bool:
    words = " ".join(text.split())
    return bool(_STILL_TRYING.search(words)) and not _GAVE_UP.search(words)


def says_returned(text: str) -> bool:
    return bool(_RETURNS.search(" ".join(ADDRESS.sub("@", text).split())))


def _excerpt(text: str, found: re.Match[str], before: int = 0) -> str:
    start = max(found.start() - before, 0)
    start = max(text.rfind("\n\n", start, found.start()), start)
    return " ".join(text[start : found.start() + EXCERPT].strip().partition("\n\n")[0].split())
