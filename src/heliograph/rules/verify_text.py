"""The text that carries a code: by language, the platform's own before the built-in one, with a line for browsers."""

import re
from collections.abc import Mapping

TEXT_MAX = 160  # characters before the values are in
DEFAULT = "en"

# Short, and in the GSM-7 alphabet where the language can be written in it, so that each is one SMS.
TEXTS = {
    "en": "{{brand.name}}: your code is {{code}}. It is valid for 10 minutes. Do not share it.",
    "ar": "{{brand.name}}: رمزك هو {{code}}. لا تشاركه مع أحد.",
    "da": "{{brand.name}}: din kode er {{code}}. Den gælder i 10 minutter. Del den ikke med nogen.",
    "de": "{{brand.name}}: Ihr Code ist {{code}}. Er gilt 10 Minuten. Geben Sie ihn nicht weiter.",
    "es": "{{brand.name}}: tu clave es {{code}}. Vale 10 minutos. No la compartas.",
    "fi": "{{brand.name}}: koodisi on {{code}}. Se on voimassa 10 minuuttia. Älä jaa sitä.",
    "fr": "{{brand.name}} : votre code est {{code}}. Il est valable 10 minutes. Ne le partagez pas.",
    "hi": "{{brand.name}}: कोड {{code}}. इसे किसी को न बताएं।",
    "id": "{{brand.name}}: kode Anda {{code}}. Berlaku 10 menit. Jangan bagikan.",
    "it": "{{brand.name}}: il tuo codice è {{code}}. Vale 10 minuti. Non condividerlo.",
    "ja": "{{brand.name}}: 認証コードは{{code}}です。他人に教えないでください。",
    "ko": "{{brand.name}}: 인증번호 {{code}}. 타인에게 알려주지 마세요.",
    "nb": "{{brand.name}}: koden din er {{code}}. Den gjelder i 10 minutter. Ikke del den.",
    "nl": "{{brand.name}}: je code is {{code}}. Deze is 10 minuten geldig. Deel hem niet.",
    "pl": "{{brand.name}}: kod {{code}}. Wygasa za 10 minut. Nikomu go nie podawaj.",
    "pt": "{{brand.name}}: use {{code}} para confirmar. Vale por 10 minutos. Mantenha em segredo.",
    "ru": "{{brand.name}}: код {{code}}. Никому не сообщайте.",
    "sv": "{{brand.name}}: din kod är {{code}}. Den gäller i 10 minuter. Dela den inte.",
    "tr": "{{brand.name}}: kodunuz {{code}}. 10 dakika sonra sona erer. Kimseye vermeyin.",
    "zh": "{{brand.name}}: 您的验证码是{{code}}，请勿告诉他人。",
}

_SLOT = re.compile(r"\{\{(brand\.name|code)\}\}")
_BRACES = re.compile(r"\{\{|\}\}")


def check_text(text: str) -> str:
    """What a platform may set as its own text; raises ValueError with what is wrong."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"expected at most {TEXT_MAX} characters, got {len(text)}")
    if "{{code}}" not in text:
        raise ValueError("expected a text with {{code}} in it")
    if _BRACES.search(_SLOT.sub("", text)):
        raise ValueError("expected no placeholders but {{brand.name}} and {{code}}")
    return text


def verify_text(own: Mapping[str, str], language: str, brand: str, code: str, webotp: str = "") -> str:
    """In this language, or without its region, or English; `webotp` is the domain that browsers fill the code in on."""
    texts = TEXTS | dict(own)
    found = next(texts[each] for each in (language, language.partition("-")[0], DEFAULT) if each in texts)
    values = {"brand.name": brand, "code": code}
    filled = _SLOT.sub(lambda slot: values[slot[1]], found)
    return f"{filled}\n@{webotp} #{code}" if webotp else filled
