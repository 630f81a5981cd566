"""Texts that contain a verification code, by language. The platform's own texts override the built-in ones.

WhatsApp has no texts here: it uses the team's AUTHENTICATION template, as approved by Meta.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from heliograph.domain.mail.system_mail import SystemMail

Text = TypeVar("Text")

TEXT_MAX = 160  # characters before placeholders are replaced
DEFAULT_LANGUAGE = "en"

# Short, and in the GSM-7 alphabet where the language allows it, so that each text is one SMS.
TEXT_BY_LANGUAGE = {
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

# For a mail: the subject, the instruction, and the warning.
MAIL_TEXTS_BY_LANGUAGE = {
    "en": (
        "{{code}} is your {{brand.name}} code",
        "Enter this code to continue. It is valid for 10 minutes.",
        "Do not share it. If you didn't request this code, you can ignore this email.",
    ),
    "ar": (
        "{{code}} هو رمزك لدى {{brand.name}}",
        "أدخل هذا الرمز للمتابعة. وهو صالح لمدة 10 دقائق.",
        "لا تشاركه مع أحد. إذا لم تطلبه، يمكنك تجاهل هذه الرسالة.",
    ),
    "da": (
        "{{code}} er din kode til {{brand.name}}",
        "Indtast koden for at fortsætte. Den gælder i 10 minutter.",
        "Del den ikke med nogen. Har du ikke bedt om den, kan du se bort fra denne mail.",
    ),
    "de": (
        "{{code}} ist Ihr Code für {{brand.name}}",
        "Geben Sie diesen Code ein, um fortzufahren. Er gilt 10 Minuten.",
        "Geben Sie ihn nicht weiter. Wenn Sie ihn nicht angefordert haben, ignorieren Sie diese E-Mail.",
    ),
    "es": (
        "{{code}} es tu código de {{brand.name}}",
        "Introduce este código para continuar. Es válido durante 10 minutos.",
        "No lo compartas. Si no lo has pedido, ignora este correo.",
    ),
    "fi": (
        "{{code}} on {{brand.name}}-koodisi",
        "Jatka syöttämällä tämä koodi. Se on voimassa 10 minuuttia.",
        "Älä jaa sitä. Jos et pyytänyt sitä, voit jättää tämän viestin huomiotta.",
    ),
    "fr": (
        "{{code}} est votre code {{brand.name}}",
        "Saisissez ce code pour continuer. Il est valable 10 minutes.",
        "Ne le partagez pas. Si vous ne l'avez pas demandé, ignorez cet e-mail.",
    ),
    "hi": (
        "{{code}} आपका {{brand.name}} कोड है",
        "आगे बढ़ने के लिए यह कोड डालें। यह 10 मिनट तक मान्य है।",
        "इसे किसी को न बताएं। अगर आपने इसे नहीं मांगा, तो इस ईमेल को अनदेखा करें।",
    ),
    "id": (
        "{{code}} adalah kode {{brand.name}} Anda",
        "Masukkan kode ini untuk melanjutkan. Berlaku 10 menit.",
        "Jangan bagikan. Jika Anda tidak memintanya, abaikan email ini.",
    ),
    "it": (
        "{{code}} è il tuo codice {{brand.name}}",
        "Inserisci questo codice per continuare. È valido per 10 minuti.",
        "Non condividerlo. Se non lo hai richiesto, ignora questa email.",
    ),
    "ja": (
        "{{brand.name}}の認証コード: {{code}}",
        "続けるにはこのコードを入力してください。有効期限は10分です。",
        "他人に教えないでください。心当たりがない場合は、このメールを無視してください。",
    ),
    "ko": (
        "{{brand.name}} 인증번호: {{code}}",
        "계속하려면 이 인증번호를 입력하세요. 10분 동안 유효합니다.",
        "타인에게 알려주지 마세요. 요청하지 않았다면 이 이메일을 무시하세요.",
    ),
    "nb": (
        "{{code}} er koden din for {{brand.name}}",
        "Skriv inn koden for å fortsette. Den gjelder i 10 minutter.",
        "Ikke del den. Hvis du ikke ba om den, kan du se bort fra denne e-posten.",
    ),
    "nl": (
        "{{code}} is je code voor {{brand.name}}",
        "Voer deze code in om verder te gaan. Hij is 10 minuten geldig.",
        "Deel hem niet. Heb je er niet om gevraagd, negeer dan deze e-mail.",
    ),
    "pl": (
        "{{code}} to Twój kod {{brand.name}}",
        "Wpisz ten kod, aby kontynuować. Jest ważny 10 minut.",
        "Nikomu go nie podawaj. Jeśli nie prosiłeś o kod, zignoruj tę wiadomość.",
    ),
    "pt": (
        "{{code}} é o seu código {{brand.name}}",
        "Digite este código para continuar. Ele vale por 10 minutos.",
        "Não o compartilhe. Se você não o pediu, ignore este e-mail.",
    ),
    "ru": (
        "{{code}} — ваш код {{brand.name}}",
        "Введите этот код, чтобы продолжить. Он действует 10 минут.",
        "Никому его не сообщайте. Если вы его не запрашивали, не обращайте внимания на это письмо.",
    ),
    "sv": (
        "{{code}} är din kod för {{brand.name}}",
        "Ange koden för att fortsätta. Den gäller i 10 minuter.",
        "Dela den inte. Om du inte bad om den kan du bortse från det här mejlet.",
    ),
    "tr": (
        "{{code}}, {{brand.name}} kodunuz",
        "Devam etmek için bu kodu girin. 10 dakika geçerlidir.",
        "Kimseyle paylaşmayın. Bunu siz istemediyseniz bu e-postayı dikkate almayın.",
    ),
    "zh": (
        "{{brand.name}} 验证码：{{code}}",
        "请输入此验证码以继续。10 分钟内有效。",
        "请勿告诉他人。如果您没有申请，请忽略此邮件。",
    ),
}

_PLACEHOLDER = re.compile(r"\{\{(brand\.name|code)\}\}")
_BRACES = re.compile(r"\{\{|\}\}")


def check_text(text: str) -> str:
    """Return a text that an operator entered, if it is valid; raise ValueError with the error otherwise."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"expected at most {TEXT_MAX} characters, got {len(text)}")
    if "{{code}}" not in text:
        raise ValueError("expected a text with {{code}} in it")
    if _BRACES.search(_PLACEHOLDER.sub("", text)):
        raise ValueError("expected no placeholders but {{brand.name}} and {{code}}")
    return text


def verify_text(overrides: Mapping[str, str], language: str, brand: str, code: str, webotp: str = "") -> str:
    """Return the text in this language; else in the language without its region; else in English.

    `webotp`: the domain on which browsers autofill the code.
    """
    filled = _fill(text_for_language(TEXT_BY_LANGUAGE | dict(overrides), language) or "", brand, code)
    return f"{filled}\n@{webotp} #{code}" if webotp else filled


def languages(overrides: Mapping[str, str]) -> set[str]:
    """Return the languages in which a text exists."""
    return {*TEXT_BY_LANGUAGE, *overrides}


def verify_mail(overrides: Mapping[str, str], language: str, brand: str, code: str) -> SystemMail:
    """Return the mail that contains a code. The platform's own text in the language replaces all but the subject."""
    subject, instruction, warning = (
        _fill(text, brand, code)
        for text in text_for_language(MAIL_TEXTS_BY_LANGUAGE, language) or MAIL_TEXTS_BY_LANGUAGE[DEFAULT_LANGUAGE]
    )
    if any(candidate in overrides for candidate in (language, language.partition("-")[0])):
        instruction, warning = verify_text(overrides, language, brand, code), ""
    return SystemMail(subject=subject, summary=instruction, code=code, footer=warning, language=language)


def text_for_language(texts: Mapping[str, Text], language: str) -> Text | None:
    candidates = (language, language.partition("-")[0], DEFAULT_LANGUAGE)
    return next((texts[candidate] for candidate in candidates if candidate in texts), None)


def _fill(text: str, brand: str, code: str) -> str:
    values = {"brand.name": brand, "code": code}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)
