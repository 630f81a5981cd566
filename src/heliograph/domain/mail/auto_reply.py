"""Detects automatic replies by subject prefix, in many languages."""

import re
import unicodedata

SUBJECT_MAX = 200  # characters of a subject that are examined

# Subject prefixes that only automatic replies have.
_UNAMBIGUOUS_PREFIXES = (
    r"\[?auto(?:mat(?:ic|ed))?[ -]?(?:reply|response|respond(?:er)?|answer)\b|autoreply|auto: ",
    r"automatische (?:antwort|abwesenheit|reactie|reply)|autom\. antwort|abwesenheits(?:notiz|nachricht|meldung|agent)",
    r"abwesenheitsassistent|abwesenheitsbenachrichtigung|réponse automatique|message d.absence|notification d.absence",
    r"respuesta autom[áa]tica|resposta autom[áaà]tica|risposta automatica|automatisch(?:e)? antwoord|afwezigheids",
    r"autosvar|automatiskt? svar|frånvaromeddelande|fraværs(?:besked|melding)|automaatti(?:nen )?vastaus",
    r"poissaoloilmoitus",
    r"automatyczna odpowied[źz]|odpowied[źz] automatyczna|autoodpowied[źz]|automatick[áa] odpov[eě][dď]",
    r"automatikus v[áa]lasz|r[ăa]spuns automat|automatski odgovor|samodejni od(?:govor|ziv)|automaatne vastus",
    r"autom[āa]tisk[āa] atbilde|automatinis atsakymas|erantzun automatikoa|balasan (?:otomatis|automatik)",
    r"otomatik (?:yanıt|yanit|cevap)|(?:thư )?trả lời tự động",
    r"автоматич(?:еский ответ|на відповідь|ен отговор)|автоответ|автовідповідь|аутоматски одговор",
    r"αυτόματη απάντηση|رد تلقائي|الرد التلقائي|پاسخ خودکار|מענה אוטומטי|תשובה אוטומטית|स्वचालित (?:उत्तर|जवाब)",
    r"(?:การ)?ตอบกลับอัตโนมัติ|自動(?:応答|返信|回覆|回复|答覆)|自动(?:回复|答复)",
    r"자동 ?(?:회신|응답|답장)|不在(?:通知|のお知らせ|届)",
)
# Subject prefixes that people also write; they count only as a whole subject or before a colon or other separator.
_AMBIGUOUS_PREFIXES = (
    r"out[ -]of[ -](?:the[ -])?office(?: (?:auto-?)?(?:reply|message|notification|notice|response|assistant))?",
    r"abwesend|nicht im büro|absen(?:ce|te?) du bureau|absence|fuera de (?:la )?oficina",
    r"ausen(?:te|cia)(?: de la oficina)?",
    r"fora do escritório|ausência|ausente do escritório|fuori (?:sede|ufficio)|assente|afwezig|frånvaro|fravær|poissa",
    r"nieobecność|poza biurem|nepřítomnost|neprítomnosť|mimo kancelář|házon kívül|ofis dışında|вне офиса|нет на месте",
    r"извън офиса|εκτός γραφείου|不在|外出|부재 ?중|vacation (?:reply|response|message)",
    r"on (?:vacation|holiday|leave)",
)
_AUTO_REPLY_SUBJECT = re.compile(
    rf"(?:{'|'.join(_UNAMBIGUOUS_PREFIXES)})|(?:{'|'.join(_AMBIGUOUS_PREFIXES)})\s{{0,3}}(?:[:：\-–—(\[]|re:|\Z)",
    re.IGNORECASE,
)


def is_auto_subject(subject: str) -> bool:
    """Return whether a decoded subject starts like an automatic reply. `Re: Automatic reply` does not."""
    return _AUTO_REPLY_SUBJECT.match(unicodedata.normalize("NFC", subject[:SUBJECT_MAX]).lstrip()) is not None
