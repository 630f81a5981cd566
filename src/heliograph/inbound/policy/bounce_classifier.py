"""Classifies bounces: decides whether the address itself or something else caused a rejection.

Used for SMTP replies and for bounce mails. Text takes precedence over codes (contract 6). An address must be suppressed
only if it is invalid itself. Therefore phrases for other causes are matched first, and a code decides only if the text
gives no reason. The phrases are not specific to servers, because most mail systems use the same ones.
"""

import re
import unicodedata

import msgspec

TEXT_MAX = 8000  # maximum characters of a text that are examined

# Enhanced status codes that mean an invalid address even without a text (reliability.md, SMTP retries).
ADDRESS_CODES = frozenset({"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.1.351", "5.2.1"})
# Enhanced status codes without a reason: servers send them for a plain 550 or a missing route.
VAGUE_CODES = frozenset({"5.0.0", "5.1.0", "5.2.0", "5.3.0", "5.4.4", "5.5.0"})

URL = re.compile(r"\b(?:https?|ldap|mailto):\S{1,500}|\bwww\.\S{1,500}", re.IGNORECASE)
ADDRESS = re.compile(r"[^\s<>()\[\]\"',;:=|`]{1,64}@[A-Za-z0-9\-_.\x80-\U0010ffff]{1,255}")
_HOST = re.compile(r"(?<![\w.-])(?:[a-z0-9][a-z0-9-]{0,62}\.){1,8}[a-z]{2,24}(?![\w-]|\.[a-z])")
_BLOCKLIST_HOST = re.compile(
    r"spamhaus|spamcop|\bsorbs|barracuda|abuseat|dnsbl|ipcheck\.|\brbl|uribl|surbl|groups\.google", re.IGNORECASE
)
_WRAPPER_PREFIX = re.compile(r"unknown address error (?=[45]\d\d\b)")  # IronPort's prefix to the remote server's reply
_FOLDED_CHARS: dict[int, str] = {
    code: unicodedata.normalize("NFD", chr(code))[0] for code in (*range(0xC0, 0x250), *range(0x370, 0x400))
}
_FOLDED_CHARS |= dict.fromkeys(range(0x300, 0x370), "")  # combining accents
_FOLDED_CHARS |= str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "ı": "i", "\u2018": "'", "\u2019": "'", "`": "'"})


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address_fault: bool = False  # the address itself is invalid
    permanent: bool = True
    weak: bool = False  # vague phrase: other reasons and, if it blames the address, codes take precedence over it


def _reason(
    name: str, *phrases: str, address_fault: bool = False, permanent: bool = True, weak: bool = False
) -> tuple[re.Pattern[str], Reason]:
    return re.compile("|".join(phrases)), Reason(name=name, address_fault=address_fault, permanent=permanent, weak=weak)


# Phrases are matched against `normalize`d text, where `@` replaces an address, and `~` a host or link.
_WORD = r"(?:[^\s:;!?]{0,40}[^\s.,:;!?] )"  # another word of the same sentence
_RECIPIENT_NOUN = (
    r"\b(?:users?|user ?names?|recipients?|rcpt|mail ?box(?:es)?|(?:email |e-mail |mail )?accounts?|address(?:es|ee)?"
    r"|alias|person|customer|subscriber)"
)
_HOST_NOUN = r"\b(?:hosts?|domains?|host ?names?|domain names?|mail servers?|mail exchangers?|mx(?: records?)?)"
_NEGATION = r"(?:not|(?:do|does|did|could|can|is|was|are|has|have|would)n.?t)"
_DOES_NOT_EXIST = (
    rf"(?:unknown|{_NEGATION} {_WORD}{{0,2}}(?:found|known|exist|recogni|listed|valid|regist|resolv|present"
    rf"|local|active\b)"
    rf"|nonexist|non-exist|inexist|(?:is |are |was |seems )?invalid|{_NEGATION} be (?:found|resolved|located))"
)
_SENDING_HOST_NOUN = r"(?:ip|host|host ?name|(?:mail |smtp )?server|(?:sending )?domain|network|isp|mta|client)"
_CONTENT_NOUN = r"(?:contenido|conteudo|contenuto|contenu|inhalt\w?)\b"

_SIZE_NOUN = (
    r"(?:tamano|tamanho|taille|dimensi(?:on[ei]|unea)|grosse|grootte|rozmiar\w?|velikost|storlek|storrelse|koko|meret\w?"
    r"|boyut\w{0,2})"
)
_EXCEEDS = r"(?:exced|depas|superi?[ao]|uberschr|overschr|przekr|prekroc|overskrid|ylit|meghalad|\basi[yl])"
# block lists and unwanted mail, in other languages
BLOCKLIST_PHRASES = (
    r"sperrliste|liste noire|blacklist|list[ae]s? (?:negra|nera|neagra|de bloque)|(?:zwarte|blokkeer) ?lijst"
    r"|\bczarn\w{1,3} lis[ct]|\bcern\w{1,3} listin|(?:ч[её]рн|чорн)\w{2,3} спис|kara liste|svartlist|sortlist"
    r"|estolist|mustalist|fekete ?list|(?:ブラック|ブロック|拒否)リスト|黑名[单單]|블랙리스트|차단 (?:목록|리스트)"
)
SPAM_PHRASES = (
    r"indesirable|no desead|nao solicitad|indesiderat|ongewenst|niechcian|nevyzadan|спам|istenmeyen|skrappost|uonsket"
    r"|roskapost|keretlen|nedorit|スパム|迷惑メール|垃圾(?:[邮郵]件|信息)|스팸"
)

# The first match wins. Reasons to reject a message come before reasons that suppress the address.
_REASONS = [
    _reason("disabled", r"\b(?:due to|for|because of|por) (?:\w{1,20} )?inac?tivi", address_fault=True),
    _reason(
        "greylisted",
        r"gr[ea]y-?list|liste grise|list[ae] (?:gris|grigia|gri|cinza\w{0,5})\b|\bgri liste|grijze lijst",
        r"\bszar\w{1,3} lis[ct]|\bsed\w{1,3} listin|(?:сер|сір)\w{2,3} спис|\bgralist|harmaalist|szurkelist",
        r"グレーリスト|灰名[单單]|그레이리스[트팅]",
        permanent=False,
    ),
    _reason(
        "mailbox_full",
        rf"\b(?:mail ?(?:box|folder|drop|dir)?|inbox|account|user|storage|disk)s? {_WORD}{{0,5}}full\b|full mailbox",
        r"quota|cuota|\bcota\b|quotum|квот|\bkvot|pojemnosci|kontingent|compte.{0,40}plein",
        rf"exceed\w* {_WORD}{{0,5}}(?:storage|mailbox|disk)|(?:storage|mailbox|mailbox size|disk) limit",
        rf"(?:out of|not enough|insufficient|no|enough) {_WORD}?(?:disk|mailbox|storage)? ?space|space "
        rf"{_WORD}{{0,3}}used up",
        rf"(?:mailbox|inbox) {_WORD}{{0,3}}(?:exceed|size)|too much mail|too many messages on|(?:blocks|inode) limit",
        r"(?:メールボックス|受信箱|受信トレイ|受信ボックス).{0,20}(?:一杯|いっぱい|満杯|容量)",
        r"容量.{0,20}(?:超|不足|オーバー)",
        r"(?:postfach|posteingang|speicher).{0,30}(?:u?e?berful|voll|uberschritten|ueberschritten|erschopft)",
        r"(?:boite|stockage).{0,40}(?:plein|satur)|spazio.{0,30}esaurit|(?:sin|sem) espa[cs][io]o",
        r"kein\w{0,2} (?:freie\w{0,2} )?speicher|(?:onvoldoende|geen|te weinig) (?:\w{1,10} )?ruimte",
        r"ei (?:\w{1,8} )?tilaa\b",
        r"(?:buzon|casilla|cuenta).{0,50}llen[ao]|casella.{0,50}(?:piena|satura)",
        r"(?:caixa|conta).{0,50}(?:cheia|lotada)",
        r"ящик.{0,40}(?:переполнен|полон|заполнен)|скриньк.{0,40}(?:пере|за)повнен|нет (?:\w{1,12} )?места|немає місця",
        r"кути.{0,30}пълна|скриньк.{0,20}повна|\bbetelt\b|zaplnen|(?:cuti|casut)\w{1,3} .{0,40}\bplin|空间已?[满不]",
        r"(?:[邮郵信]箱|收件箱|收件匣).{0,8}(?:满|滿|空间|空間|配额|配額)",
        r"(?<!메일 )(?<!메시지 )용량.{0,10}(?:초과|부족)",
        r"(?:메일함|편지함|사서함).{0,20}(?:가득|꽉|초과)",
        r"(?:postvak|mailbox).{0,30}\bvol\b|kiintio|taynna\b|ei ole tilaa|tila (?:on )?loppu",
        r"(?:brevlad|postlad|inkorg|postkasse|innbo[kx]|indbak|indbo[kx]|(?:post|mail)boks|konto)\w{0,4}.{0,30}\b(?:ful[ld]t?|fyldt)\b",
        r"schrank.{0,30}(?:\bpln[aey]\b|preplnen)|\bpln[ae] schrank|(?:skrzynk|kont).{0,30}pelnion|skrzynk.{0,30}pelna",
        r"brak (?:\w{1,10} )?miejsca|posta(?:lada|fiok).{0,30}(?:telt\b|\btele\b)",
        r"\bkota\w{0,6} (?:asil|asti|dol)|\bkutu\w{0,6}.{0,20}\bdol(?:u|mus|du)",
        r"(?:γραμματοκιβωτι|θυριδα|εισερχομεν).{0,40}(?:πληρ|γεματ)|υπερβαση",
        r"(?:صندوق|البريد|المساحة).{0,40}(?:ممتل|امتل)|(?:تجاوز|تخط).{0,20}(?:الحصة|حصة|المساحة|السعة)|מלאה",
        rf"\bover {_WORD}{{0,2}}limit",
    ),
    _reason(
        "too_large",
        rf"(?:message|mail|content|attachment|headers?|size)s? {_WORD}{{0,4}}too (?:large|big|long)|too (?:large"
        rf"|big) m",
        rf"(?:message|mail|e-?mail)(?:'s)? (?:size|length) {_WORD}{{0,3}}(?:exceed|limit|larger)|size limit|mailsize",
        rf"exceed\w* {_WORD}{{0,6}}(?:size|length|maximum message)|larger than the {_WORD}{{0,3}}(?:limit|size)",
        r"header (?:size|length)|line (?:is )?(?:too long|length)|trop (?:gros|volumineux|long|lourd|grand)",
        r"\btoo big\b|size exceeds|lines too long|サイズ.{0,20}(?:超|大き|制限)",
        r"zu gro(?:ss|b)|\bte groot|\b(?:za|zbyt) duz[aey]|prilis velk|for stor|liian suur|tul nagy|cok buyuk",
        r"prea mare|(?:troppo|demasiado|muito) grand|слишком больш|занадто велик",
        r"大きすぎ|[过過太]大|크기.{0,10}(?:너무|초과)",
        rf"{_SIZE_NOUN}\b.{{0,40}}{_EXCEEDS}|{_EXCEEDS}.{{0,40}}\b{_SIZE_NOUN}|oltre la dimension|大小.{{0,6}}[超限]",
        r"(?:размер|розмір).{0,40}(?:прев[ыи]ш|перевищ)|(?:메일|메시지) 용량.{0,10}초과",
    ),
    _reason(
        "loop",
        r"(?:mail|routing|forwarding) loop|looping|loop was|hop count|\bhops\b|loops? back to|loop detected",
    ),
    _reason(
        "policy",
        # block lists, spam, viruses, content
        r"\bspam|\bube\b|\bjunk|unsolicited|bulk mail|black[- ]?list|block-? ?list|deny[- ]?list|\bblocked",
        r"(?:white|allow|allowed|safe)[- ]?list|(?:approved|allowed|trusted|permitted) (?:list|senders?)\b",
        r"_blocked|\bbanned|spoof|\brbls?\b|dnsbl|cloudmark|(?:is|are|was|domain|address) listed",
        r"listed (?:in|at|by|on) (?:~|our|a|blocklist|\w{0,10}bl)\b",
        r"reputation|abus(?:e|ive|\b)|suspicio|suspected|virus|malware|phish|infected|trojan|quarantin|unusual",
        r"(?:message|mail|rejected|banned|unacceptable|of|its) contents?\b",
        rf"contents? {_WORD}{{0,3}}(?:reject|filter|deni|block|not|polic)",
        rf"attachments? {_WORD}{{0,4}}(?:not|reject|block|type|prohib|size|forbid)|(?:illegal|dangerous|bad) "
        rf"attachment",
        r"filter",
        r"\bbulk\b|password[- ]?protect|\bmacros?\b|(?:header|body|content|mime)[- ]checks?\b",
        rf"\b(?:por|pelo|per|wegen|aufgrund|cause d\w|raison d\w) (?:\w{{1,10}} ){{0,2}}{_CONTENT_NOUN}",
        rf"{_CONTENT_NOUN} (?:\w{{1,12}} )?(?:no|nao|non|nicht|rechaz|rejeit|rifiut|refus|abgelehnt)",
        r"prohibited|complaints?\b|dynamic ip|security (?:polic|reas|risk|issue|concern|violat)",
        # identity and authentication of the sender
        r"\bspf\b|\bdkim\b|\bdmarc\b|sender ?id\b|purported|authenti[cf]|authoriz|authoris",
        r"\barc[- ](?:seal|set|chain|sign|valid|fail)|challenge|\bviolat|harvest",
        r"reverse (?:dns|look|host|name|map|entry)|\bptr\b|\brdns\b",
        rf"\byour (?:\w{{1,20}} )?{_SENDING_HOST_NOUN}\b(?! to\b| admin)",
        r"\bclient (?:host|ip)|(?:sending|connecting) (?:host|ip|server|mta)",
        r"(?<!or )\bip address|(?:invalid|bad|by) (?:\w{1,20} )?ip\b|\bhost \[|resolve your|access from",
        r"\[\d{1,3}(?:\.\d{1,3}){3}\] (?:is|was|has)\b",
        rf"(?<!to )(?<!to the )\b(?:senders?|originator|mail ?from|from:|helo|ehlo|return path)(?:'s)?:?>? "
        rf"{_WORD}{{0,4}}"
        rf"(?:reject|{_DOES_NOT_EXIST}|denied|refus|verif|domain|null mx|is on|blocked|not allowed|complian)",
        rf"(?:invalid|unknown|bad|missing|empty|null|unroute?able|fake|forged|envelope) {_WORD}?"
        r"(?:sender|from\b|return|helo|ehlo)|domain of (?:the )?sender|emetteur|absender invalid",
        r"\bmessages from\b|\bfrom address",
        # policies of the receiver
        r"polic(?:y|ies)|permission|privilege|administrativ|moderat|restrict|closed (?:mailing )?list|list is closed",
        r"local users? only|network,? not allowed|before greeting|over ipv[46]",
        r"preferences|user rules|\boutsiders?\b|closed to (?:outside|extern|the public|non)",
        r"(?:external|outside) (?:e-?mails?|messages?|senders?|sources?|parties)|internal (?:\w{1,12} )?only",
        rf"\brelay(?:ing)? {_WORD}{{0,2}}(?:denied|not|prohib|reject|disallow)",
        rf"(?:unable|not|cannot|refus\w+) {_WORD}{{0,2}}to relay",
        r"do(?:n't| not) relay|(?:insecure|open) (?:mail )?relay|to relay\b|rcpthosts|non-accepted",
        r"relay(?:ing)? through",
        rf"not {_WORD}{{0,2}}members?\b|members? {_WORD}{{0,3}}(?:may|can) post|permission to post|mailing list",
        rf"only accept|{_NEGATION} subscribed",
        r"use the smtp server of|turn on smtp auth|\bcaptcha|open proxy|unresolvable|mass mail",
        r"refuses? to (?:receive|accept)|accept\w* (?:e?-?mails? |messages? )from",
        r"members-only|non-?members?\b|organi.ational settings|low priority|images or other|backscatter|not owned by",
        r"confirm this|refused - see|malicious|dead domain|verification fail",
        r"\byour (?:e-?mail )?(?:address|mailbox) (?:is|was)",
        # protocol errors
        r"bare (?:lf|cr)\b|headers? (?:error|is|are|was|based|too)|(?:duplicate|missing|from:|invalid|bad) header",
        r"(?:duplicate|multiple|missing|invalid|bad|no|without) (?:an? |valid ){0,2}"
        r"(?:message-?id\b|(?:from|to|cc|date|subject|reply-to|received|mime|list-[a-z]{1,12}) header)|header missing",
        rf"(?<!address )(?<!address is )(?:not|non)[- ]{_WORD}?(?:rfc[- ]?\d{{0,4}}[- ]?)?(?:complian|conform)",
        r"(?:bad|invalid|illegal|wrong|unknown) (?:\w{1,12} )?(?:char(?:acter )?set|encoding)",
        r"\btls\b|starttls|encrypt|certificate|pipelin|smtputf8|8bitmime",
        r"non-ascii|nul characters|fully qualified|dnssec",
        r"command (?:un|not )recogni|unrecogni[sz]ed command|(?:bad|improper|out of) sequence",
        r"syntax error,? (?:in (?:param|arg)|command)",
        rf"(?:option|command|parameter)s? {_WORD}{{0,2}}(?:reject|implement|support)",
        r"unsupported|not implemented|protocol (?:error|violation)",
        # other languages
        r"\b(?:ihr|votre|su|tu|sua|uw|twoje|vas|ditt|din) (?:konto|compte|cuenta|conta|account|ucet)\b",
        r"\bваш\w? (?:акк?аунт|уч|облік)",
        r"bloqu|rejet|gesperrt|拒否|заблок|blocc|zablok|geblok|\bblocat|\bsparr(?:ad|at|et)|拒收|被拒",
        rf"{BLOCKLIST_PHRASES}|{SPAM_PHRASES}|richtlinie|politi(?:que|ca|ka|kou)\b|\bbeleid|политик|політик|ポリシー|策略|정책",
        r"adres\w{0,3} (?:nadawcy|odesilatele)|адрес\w{0,2} отправител",
    ),
    _reason(
        "rate",
        r"\brate (?:limit|exceed|that|of)|ratelimit|\brated? \w{1,20} exceed|sending rate",
        r"too (?:many|much|fast|quick|high)|slower|slow down|trop de|numerous attempts",
        rf"frequency|throttl|(?:sending|hourly|daily|connection|receiv\w+) {_WORD}{{0,3}}limit|limit exceeded",
        r"per (?:hour|day|session|connection)|recipients? (?:limit|per|ratio|exceed)|only one|at a time\b",
        r"limit (?:was |is |has been )?(?:reached|hit)\b|asked for a pause|connections of ours",
        rf"(?:unusual|unexpected) (?:rate|volume)|exceed\w* {_WORD}{{0,3}}limit|volume of|(?:high|message|mail) volume",
        r"deferred",
        rf"number of {_WORD}{{0,4}}(?:messages|recipients|connections)|outgoing (?:mail|message)",
        r"\bzu (?:viele|schnell|haufig|oft)|demasiad[oa]s|tropp[ie] |muit[oa]s |te (?:veel|snel|vaak)\b",
        r"prea (?:mult|des)\b",
        r"zbyt (?:wiele|duzo|czesto)|prilis (?:mnoho|casto|rychle)|слишком (?:много|часто)",
        r"за(?:надто )?(?:багато|часто)",
        r"cok (?:fazla|sik|hizli)|for (?:manga|mange|ofta|ofte)\b|liian (?:mont|paljon|usein|nopea)|\bliikaa",
        r"tul (?:sok|gyak)",
        r"лимит\w? отправ|ліміт\w? надсил|limite? (?:de|di|d.) ?(?:envi|invi|mens|mess|conex|conness)|prea multe",
        r"(?:mensajes|correos|mensagens|messages|messaggi) .{0,20}(?:por|par|all.) ?(?:hora|heure|ora)",
        r"debit trop|trop (?:rapide|frequent)|多すぎ|过多|過多|频率|頻率|频繁|頻繁|너무 (?:많|자주|빨)",
        permanent=False,
    ),
    _reason(
        "lookup",
        r"not found, try again|host ?name lookup (?:failure|error)|(?:dns|name server) time",
        rf"name service error {_WORD}{{0,6}}(?:try again|timed)|temporary {_WORD}{{0,2}}(?:lookup|dns|resol)",
        r"(?:dns|mx|name) (?:query|lookup) (?:failed|error)",
        r"(?:ldap|directory|database|table|map|sql) (?:(?:query|lookup|server) )?(?:fail|error|unavail)",
        permanent=False,
    ),
    _reason(
        "temporary",
        r"(?<!not a )temporar|temporair|temporal(?:mente)?\b|temporane|vor(?:u|ue)bergehend|momentan|tijdelijk",
        r"tymczasow|chwilow|\bdocasn|временн|тимчасов|\bgecici|tillfallig|midlertidig|tilapai|\batmeneti",
        r"一時的|临时|臨時|暂时|暫時|일시적|currently unavailable|right now\b|maintenance|mantenimiento|wartung",
        rf"(?:cannot|can't|could not|unable to|not able to) {_WORD}?(?:verify|validate|check)|locked by|another "
        rf"process",
        r"being (?:moved|migrated)|migration",
        r"mail ?box (?:is )?(?:currently |already )?(?:busy|in use)",
        permanent=False,
    ),
    _reason(
        "disabled",
        r"(?:account|mailbox|user) (?:is|was|has been) (?:currently )?(?:disabled|inactive|suspended|deactivated)",
        address_fault=True,
    ),
    _reason("moved", r"user not local\W{1,3}(?:please )?try", address_fault=True),
    _reason("bad_address", r"recipient (?:address )?syntax|malformed recipient", address_fault=True),
    _reason(
        "unknown_user",
        rf"(?:unknown|no such|invalid|illegal|bad|non-?existent|unrecogni[sz]ed|incorrect|undefined|wrong) "
        rf"{_WORD}{{0,3}}(?:{_RECIPIENT_NOUN}|\b(?:userid|local ?-?part|member|mail ?name|e?-?mail))\b",
        rf"{_RECIPIENT_NOUN}\b\W{{0,3}} ?{_WORD}{{0,7}}(?:{_DOES_NOT_EXIST}|possibly incorrect|misspelled)",
        rf"(?:^|[\s<\[(\"'])@[>\])\"']?\W{{0,4}}(?:(?:is|was) )?(?:user )?{_DOES_NOT_EXIST}",
        rf"no {_WORD}?(?:mail ?box|user|account|person|recipients?) {_WORD}{{0,2}}(?:here|by that|with th|found"
        rf"|named|avail)",
        r"\bno mail ?box(?:es)?(?= ?(?:$|[^\w\s]|for\b|here|on\b|at\b|with))",
        rf"{_NEGATION} have an? {_WORD}{{0,2}}(?:account|mailbox)|not our (?:user|customer)|missing home dir|in "
        rf"name directory",
        rf"not an? {_WORD}{{0,2}}(?:valid|known|registered|local|user|active)\b|{_NEGATION} accept user|can't "
        rf"accept user",
        rf"no such {_WORD}?here|(?:no one|anybody|anyone) (?:here )?(?:by that|at this)|nobody (?:here|by)|not "
        rf"listed in",
        r"user ?unknown",
        r"name is not (?:recogni|known)|unroute?able (?:mail )?(?:address|domain)",
        r"recip\w{0,10}notfound|bad ?rcpt ?to|invalid-recipient|recipient not ok|archived recipient",
        r"destinataire archive",
        rf"user {_WORD}?not (?:here|local)|not (?:found|known) (?:here|at this)|unavailable or access denied",
        # Microsoft 365 if the tenant has no such address (directory-based edge blocking)
        r"\b5\.4\.1\b.{0,90}recipient address rejected: access denied",
        r"(?:宛先|送信先|あて先|受信者|アドレス|ユーザ|アカウント).{0,30}(?:存在し|見つか|不明|ありません)|宛先不明",
        r"(?:用户|收件人|地址|邮箱|帐号|账号|帳號|信箱).{0,12}(?:不存在|未知|未找到|无效|無效|找不到)",
        r"[查无無]此(?:用户|用戶|人|邮箱)",
        r"(?:找不到|不存在的?)(?:用户|收件人|地址|邮箱)",
        r"(?:ような|該当する|存在しない)(?:メール)?(?:宛先|アドレス|ユーザ).{0,10}(?:ありません|存在|です)",
        r"(?:사용자|수신자|주소|계정|메일).{0,20}(?:없|존재하지)",
        r"(?:존재하지 않|등록되지 않|없)[는은].{0,20}(?:사용자|수신자|주소|계정|메일)",
        r"(?:empf(?:a|ae)nger|benutzer|adresse|postfach|konto|mailbox).{0,50}"
        r"(?:unbekannt|existiert nicht|nicht (?:gefunden|vorhanden|bekannt)|ung(?:u|ue)ltig)",
        r"unbekannt\w{0,2} (?:empf|benutzer|adress|e-?mail)",
        r"(?:kein|ungu?e?ltige)\w{0,2} (?:solche\w{0,2} |gu?e?ltige\w{0,2} )?(?:empf|benutzer|adress|postfach|konto)",
        r"(?:destinataire|utilisateur|adresse|compte|boite).{0,50}(?:inconnu|n.existe pas|inexist|invalide|introuv)",
        r"(?:destinat[ao]ri|usuari|utilizador|cuenta|conta|direccion|endereco|buzon|caixa).{0,50}"
        r"(?:desconocid|desconhecid|n[oa]o? existe|invalid|inexist|n[oa]o? encontrad|n[oa]o? valid)",
        r"(?:no|nao) existe (?:\w{1,10} )?(?:usuari|utilizador|buzon|cuenta|conta|direccion|persona|destinat|endereco"
        r"|caixa)",
        r"(?:utente|casella|indirizzo|destinatario|account).{0,50}(?:sconosciut|inesistent|non (?:esist|valid|trovat))",
        r"nessun utente|(?:uzytkownik|odbiorc|adres|konto|skrzynka).{0,40}(?:nie istniej|nieznan|nie znaleziono)",
        r"nie znaleziono (?:uzytkownik|odbiorc|adresat|skrzynk)|(?:nie ma|brak) taki",
        r"(?:brak|nieznan\w{1,3}) (?:uzytkownik|odbiorc|adres|kont|skrzynk)",
        r"(?:пользовател|получател|адрес|ящик).{0,50}(?:не найден|не существует|неизвест|отсутств|не зарегистр)",
        r"нет такого (?:пользовател|получател|адрес|ящик)|адресат\w? не найден",
        r"такого (?:почтового )?(?:пользовател|получател|адрес|ящик)\w{1,2} не[т ]",
        r"(?:неизвест|несуществу|недействит|неверн)\w{1,8} (?:почтов\w{1,3} )?(?:пользовател|получател|адрес|ящик)",
        r"(?:користувач|одержувач|отримувач|адрес|скриньк).{0,40}(?:не існує|не знайден|невідом)",
        r"невідом\w{1,3} (?:користувач|одержувач|отримувач|адрес)",
        r"(?:gebruiker|ontvanger|adres|postvak|mailbox).{0,40}(?:onbekend|bestaat niet|niet gevonden)",
        r"onbekende (?:gebruiker|ontvanger)",
        r"(?:mottagar|modtager|mottaker|anvandar|bruger|bruker|adress|konto|brevlad|postkasse).{0,40}"
        r"(?:okan[dt]|ukendt|ukjent|finns (?:inte|ej)|(?:findes|finnes|eksisterer) ikke|existerar inte|hittades inte"
        r"|ikke fundet)",
        r"finns (?:ing(?:en|et) |inte nagon )(?:sadan |sadant )?(?:mottagar|anvandar|adress|konto|brevlad)",
        r"(?:okan[dt]\w?|ukendte?|ukjente?) (?:mottagar|modtager|mottaker|anvandar|bruger|bruker|adress|konto)",
        r"tunte?mat\w{1,4} (?:kayttaj|vastaanottaj|osoit|postilaatik)",
        r"(?:kayttaj|vastaanottaj|osoit|postilaatik).{0,30}(?:ei (?:loydy|loytynyt|ole olemassa|tunneta)|tuntematon)",
        r"(?:uzivatel|pouzivatel|prijemc|adresat|adresa|schranka|ucet).{0,40}(?:neexist|neznam|nenalezen)",
        r"neznam\w{1,3} (?:uzivatel|pouzivatel|prijemc|adres|schrank)",
        r"(?:kullanici|alici|adres|hesap|hesab|posta kutusu).{0,30}(?:bulunamadi|bulunmuyor|mevcut degil|\byok\b)",
        r"(?:bilinmeyen|gecersiz|boyle bir) (?:kullanici|alici|adres|hesap)",
        r"(?:ismeretlen|nincs ilyen|nem letezo) (?:felhasznalo|cimzett|posta|cim\b|e-?mail)",
        r"(?:felhasznalo|cimzett|postafiok|postalada|\bcim\b).{0,40}(?:nem letezik|nem talalhato|ismeretlen)",
        r"(?:αγνωστ|ανυπαρκτ)\w{1,2} (?:χρηστη|παραληπτη|διευθυνση)",
        r"(?:χρηστη|παραληπτη|διευθυνση|γραμματοκιβωτι|λογαριασμο).{0,40}(?:δεν (?:υπαρχει|βρεθηκε)|αγνωστ)",
        r"aucun (?:utilisateur|destinataire|compte)",
        r"\b(?:utilizator(?:ul)?|destinatar(?:ul)?|casuta|adresa|contul)\b.{0,40}"
        r"(?:nu exista|nu a fost gasit|inexist|necunoscut)",
        r"nepoznat\w? (?:korisnik|primatelj|primalac)|tidak dikenal",
        r"(?:المستخدم|المستلم|العنوان|الحساب|البريد).{0,30}(?:غير (?:موجود|معروف|صالح)|لا يوجد)",
        address_fault=True,
    ),
    _reason(
        "disabled",
        rf"{_RECIPIENT_NOUN}\b\W{{0,3}} ?{_WORD}{{0,7}}(?:disabled|inactive|suspend(?:ed)?\b|deactivated"
        rf"|discontinued|expired"
        r"|retired|locked|closed|deleted|removed|terminated|cancell?ed|not active|no longer active|frozen|dormant)",
        r"(?:disabled|inactive|suspended|deactivated|expired|deleted|not active) (?:user|mailbox|account|address)",
        r"(?:konto|postfach).{0,30}(?:deaktiviert|gel(?:o|oe)scht|nicht (?:mehr )?aktiv|stillgelegt)",
        r"(?:compte|boite).{0,40}(?:desactiv|supprim|clotur|suspend|ferme|inacti)",
        r"(?:cuenta|conta|buzon|caixa).{0,40}(?:deshabilitad|desactivad|desativad|suspens|suspendid|cancelad|inac?tiv|encerrad)",
        r"(?:casella|account|utenza).{0,30}(?:disabilitat|disattivat|sospes|inattiv|chius)",
        r"(?:account|mailbox|postvak).{0,30}(?:uitgeschakeld|niet (?:meer )?actief|opgeheven|gesloten)",
        r"\bkont\w{1,3} .{0,20}(?:nieaktywn|wylaczon|usuniet|zawieszon)|\bucet.{0,20}(?:deaktiv|neaktiv|zrusen)",
        r"(?:ящик|аккаунт|уч[её]тн\w{1,3} запис|пользовател).{0,20}(?:отключ|удал[её]н|неактив|приостан|закрыт)",
        r"(?:скриньк|обліков\w{1,3} запис|акаунт).{0,20}(?:вимкн|видален|неактив|призупин|закрит)",
        r"\bhesa[bp]\w{0,3} .{0,20}(?:devre disi|kapa|askiya|silin|dondur)",
        r"\btili\b.{0,20}(?:suljet|poistet|lukit|jaadytet)",
        r"\bkonto\w{0,2} .{0,20}(?:avstang|inaktiv|stangt|avslut|luk?ket|deaktiv|suspender|stengt|nedlagt)",
        r"\bfiok\w{0,3} .{0,20}(?:tiltva|tiltott|inaktiv|megszun|torol|felfugg)",
        r"\bcont(?:ul)? .{0,20}(?:dezactiv|suspend|inactiv|inchis|sters)",
        r"アカウント.{0,10}(?:無効|停止|閉鎖|凍結|削除)",
        r"[帐账帳][号户號戶].{0,6}(?:停用|禁用|冻结|凍結|注销|關閉|关闭|锁定)",
        r"(?:비활성화?|정지|휴면|해지|탈퇴)\w{0,3} 계정|계정.{0,10}(?:비활성|정지|휴면|해지|삭제)",
        address_fault=True,
    ),
    _reason(
        "moved",
        rf"\bha(?:s|ve) moved|no longer {_WORD}{{0,2}}(?:on|at|with|work|avail|valid|use|employ|active|exist)",
        rf"(?:address|mailbox|account) {_WORD}{{0,3}}no longer accept",
        r"arbeitet nicht (?:mehr|langer)|ne travaille plus|ya no trabaja|non lavora piu|nao trabalha mais",
        r"werkt niet (?:meer|langer)",
        r"no forwarding|address (?:has |was )?(?:been )?changed|has left the",
        address_fault=True,
    ),
    _reason(
        "unknown_host",
        rf"(?:unknown|no such|no|non-?existent|any) {_WORD}?{_HOST_NOUN}\b|domain must exist",
        rf"{_HOST_NOUN}\b\W{{0,3}} ?{_WORD}{{0,5}}{_DOES_NOT_EXIST}",
        rf"find (?:a|any|the) {_WORD}?(?:host|domain|mail exchanger|mx)|nxdomain|null ?mx",
        r"no relevant answers|name or service not known",
        rf"{_NEGATION} (?:accept|receive) (?:any )?e?-?mail\b|no route to domain|ドメイン.{{0,20}}(?:存在し|見つか)",
        r"domain.{0,20}(?:existiert nicht|n.existe pas|no existe|не существует)",
        address_fault=True,
    ),
    # phrases that take precedence over a code, but not over the phrases above
    _reason(
        "refused",
        rf"access (?:was |is )?denied|not {_WORD}?(?:allowed|permitted)|forbidden|\bdenied\b|disallow",
        r"\b(?:message|mail|transaction)s? (?:was |is |has been |not )?(?:rejected|refused|failed|accepted|denied)",
        r"not accept delivery",
        weak=True,
    ),
    _reason(
        "expired",
        r"(?<!connection )expired|retry time|queue too long|in the queue|on the queue|giving up|given up|time limit",
        r"multiple retries",
        rf"could not (?:be delivered|deliver) {_WORD}?(?:for|within|in|after)|too many (?:retries|attempts)"
        r"|aborted after|max\w* retr",
        permanent=False,
        weak=True,
    ),
    _reason(
        "unreachable",
        rf"connection {_WORD}{{0,2}}(?:refused|reset|closed|dropped|lost|timed|failed|aborted|expired)|lost connection",
        r"timed? ?-?out",
        r"(?:un|not )able to (?:connect|establish|contact)|could(?:n.t| not) connect|did not accept our",
        r"not accepting",
        r"unreachable|not reachable|no route to host|socket error|refused to talk|no smtp connection|not respond",
        permanent=False,
        weak=True,
    ),
    _reason("greylisted", r"first time (?:we|you|that)|come back (?:later|in)\b", permanent=False, weak=True),
    _reason(
        "system",
        rf"(?:service|system|resources?|server) {_WORD}{{0,3}}(?:unavailable|not available|busy|overload|error"
        rf"|full|down)",
        r"try (?:again |it again |your message )?later",
        r"insufficient (?:system )?(?:storage|resources|memory)",
        rf"internal {_WORD}?error|config\w* error|i/o error|local error|please retry|essayer plus tard|disk full",
        r"output file|encountered an error while being|write error|misconfigur|name ?server query",
        r"returned a permanent error|spater (?:noch ?mal|erneut|wieder)|plus tard|ulterieurement|mas tarde|piu tardi",
        r"mais tarde",
        r"later opnieuw|pozniej|pozdeji|позже|пізніше|daha sonra|senare|senere|myohemmin|kesobb|mai tarziu",
        r"しばらく|後で|稍[后後]|나중에|잠시 후",
        permanent=False,
        weak=True,
    ),
    # phrases about the address without a reason, or about a domain, which may be the sender's
    _reason("unknown_host", rf"(?:invalid|illegal|bad) {_WORD}?{_HOST_NOUN}\b", address_fault=True, weak=True),
    _reason(
        "address_rejected",
        rf"{_RECIPIENT_NOUN}\b {_WORD}{{0,3}}(?:unavailable|unavaiable|not available)|no valid recipients?",
        r"(?:recipient|address|mailbox|user|rcpt)>?:? (?:address )?(?:is |not )?(?:rejected|refused|accepted)(?!:)",
        address_fault=True,
        weak=True,
    ),
]


def find_reason(*texts: str) -> Reason | None:
    """Return the reason in the first text that contains a known phrase; None if no text does."""
    for text in texts:
        normalized = normalize(text)
        for pattern, reason in _REASONS:
            if pattern.search(normalized):
                return reason
    return None


def blames_address(reason: Reason | None, *codes: str | None) -> bool:
    """Return whether a permanent rejection means that the address itself is invalid. `codes`: enhanced status codes."""
    if reason and not (reason.weak and reason.address_fault):
        return reason.address_fault
    specific_codes = [code for code in codes if code and code not in VAGUE_CODES]
    return all(code in ADDRESS_CODES for code in specific_codes) if specific_codes else bool(reason)


def is_domain_absent(reason: Reason | None, *codes: str | None) -> bool:
    """Return whether a rejection means that the recipient's domain does not exist. `codes`: enhanced status codes.

    One such rejection is not enough to fail a message. 5.1.10 means that the domain exists but accepts no mail
    (RFC 7505), or that Microsoft does not know the recipient.
    """
    by_text = reason is not None and reason.name == "unknown_host"
    is_conclusive = reason is not None and not reason.weak
    return (by_text or (not is_conclusive and "5.1.2" in codes)) and "5.1.10" not in codes


def normalize(text: str) -> str:
    """Return the text on one line, in lower case, without accents, and with addresses, hosts and links masked."""
    text = URL.sub(_mask_host, text[:TEXT_MAX])
    text = _HOST.sub(_mask_host, ADDRESS.sub("@", text).lower())
    return _WRAPPER_PREFIX.sub("", " ".join(text.translate(_FOLDED_CHARS).split()))


def _mask_host(match: re.Match[str]) -> str:
    return " blocklist " if _BLOCKLIST_HOST.search(match[0]) else "~"
