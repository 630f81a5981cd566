"""Texts of the page on which a recipient unsubscribes, in the languages of the verification texts."""

from typing import Self

import msgspec
from msgspec.structs import replace


class UnsubscribeTexts(msgspec.Struct, frozen=True):
    title: str
    question: str  # with {brand}, {category} and {address}
    button: str
    done_title: str
    done: str  # with {brand}, {category} and {address}

    def fill(self, brand: str, category: str, address: str) -> Self:
        """Return the texts with their values."""
        values = {"brand": brand, "category": category, "address": address}
        return replace(self, question=self.question.format(**values), done=self.done.format(**values))


TEXTS_BY_LANGUAGE = {
    "en": UnsubscribeTexts(
        "Unsubscribe",
        "Stop sending “{category}” emails from {brand} to {address}?",
        "Unsubscribe",
        "You're unsubscribed",
        "{address} will no longer receive “{category}” emails from {brand}.",
    ),
    "ar": UnsubscribeTexts(
        "إلغاء الاشتراك",
        "هل تريد إيقاف رسائل «{category}» من {brand} إلى {address}؟",
        "إلغاء الاشتراك",
        "تم إلغاء اشتراكك",
        "لن يتلقى {address} رسائل «{category}» من {brand} بعد الآن.",
    ),
    "da": UnsubscribeTexts(
        "Afmeld",
        "Vil du ikke længere modtage “{category}”-mails fra {brand} på {address}?",
        "Afmeld",
        "Du er afmeldt",
        "{address} modtager ikke længere “{category}”-mails fra {brand}.",
    ),
    "de": UnsubscribeTexts(
        "Abmelden",
        "Möchten Sie keine E-Mails der Kategorie „{category}“ von {brand} an {address} mehr erhalten?",
        "Abmelden",
        "Sie sind abgemeldet",
        "{address} erhält keine E-Mails der Kategorie „{category}“ von {brand} mehr.",
    ),
    "es": UnsubscribeTexts(
        "Cancelar suscripción",
        "¿Quieres dejar de recibir los correos «{category}» de {brand} en {address}?",
        "Cancelar suscripción",
        "Suscripción cancelada",
        "{address} ya no recibirá los correos «{category}» de {brand}.",
    ),
    "fi": UnsubscribeTexts(
        "Peruuta tilaus",
        "Haluatko lopettaa viestit luokasta ”{category}” lähettäjältä {brand} osoitteeseen {address}?",
        "Peruuta tilaus",
        "Tilaus on peruutettu",
        "{address} ei enää saa lähettäjän {brand} viestejä luokasta ”{category}”.",
    ),
    "fr": UnsubscribeTexts(
        "Se désabonner",
        "Ne plus recevoir les e-mails « {category} » de {brand} à l'adresse {address} ?",
        "Se désabonner",
        "Vous êtes désabonné",
        "{address} ne recevra plus les e-mails « {category} » de {brand}.",
    ),
    "hi": UnsubscribeTexts(
        "सदस्यता समाप्त करें",
        "क्या आप {address} पर {brand} के “{category}” ईमेल पाना बंद करना चाहते हैं?",
        "सदस्यता समाप्त करें",
        "आपकी सदस्यता समाप्त हो गई है",
        "{address} पर अब {brand} के “{category}” ईमेल नहीं आएंगे।",
    ),
    "id": UnsubscribeTexts(
        "Berhenti berlangganan",
        "Berhenti menerima email “{category}” dari {brand} di {address}?",
        "Berhenti berlangganan",
        "Anda telah berhenti berlangganan",
        "{address} tidak akan lagi menerima email “{category}” dari {brand}.",
    ),
    "it": UnsubscribeTexts(
        "Annulla iscrizione",
        "Vuoi non ricevere più le email “{category}” di {brand} all'indirizzo {address}?",
        "Annulla iscrizione",
        "Iscrizione annullata",
        "{address} non riceverà più le email “{category}” di {brand}.",
    ),
    "ja": UnsubscribeTexts(
        "配信停止",
        "{brand}から{address}への「{category}」メールの配信を停止しますか？",
        "配信を停止する",
        "配信を停止しました",
        "{address}には今後、{brand}の「{category}」メールは届きません。",
    ),
    "ko": UnsubscribeTexts(
        "수신 거부",
        "{brand}에서 {address}(으)로 보내는 ‘{category}’ 이메일을 더 이상 받지 않으시겠습니까?",
        "수신 거부",
        "수신 거부되었습니다",
        "{address}(으)로 더 이상 {brand}의 ‘{category}’ 이메일이 발송되지 않습니다.",
    ),
    "nb": UnsubscribeTexts(
        "Meld deg av",
        "Vil du ikke lenger motta «{category}»-e-poster fra {brand} til {address}?",
        "Meld meg av",
        "Du er meldt av",
        "{address} vil ikke lenger motta «{category}»-e-poster fra {brand}.",
    ),
    "nl": UnsubscribeTexts(
        "Afmelden",
        "Wil je geen e-mails van de categorie ‘{category}’ van {brand} meer ontvangen op {address}?",
        "Afmelden",
        "Je bent afgemeld",
        "{address} ontvangt geen e-mails van de categorie ‘{category}’ van {brand} meer.",
    ),
    "pl": UnsubscribeTexts(
        "Rezygnacja z subskrypcji",
        "Czy chcesz zrezygnować z wiadomości „{category}” od {brand} na adres {address}?",
        "Zrezygnuj",
        "Subskrypcja anulowana",
        "Adres {address} nie będzie już otrzymywać wiadomości „{category}” od {brand}.",
    ),
    "pt": UnsubscribeTexts(
        "Cancelar inscrição",
        "Deseja deixar de receber os e-mails “{category}” de {brand} em {address}?",
        "Cancelar inscrição",
        "Inscrição cancelada",
        "{address} não receberá mais os e-mails “{category}” de {brand}.",
    ),
    "ru": UnsubscribeTexts(
        "Отписаться",
        "Больше не получать письма «{category}» от {brand} на адрес {address}?",
        "Отписаться",
        "Вы отписались",
        "На адрес {address} больше не будут приходить письма «{category}» от {brand}.",
    ),
    "sv": UnsubscribeTexts(
        "Avregistrera",
        "Vill du inte längre få mejl i kategorin ”{category}” från {brand} till {address}?",
        "Avregistrera",
        "Du är avregistrerad",
        "{address} får inte längre mejl i kategorin ”{category}” från {brand}.",
    ),
    "tr": UnsubscribeTexts(
        "Abonelikten çık",
        "{brand} tarafından {address} adresine gönderilen “{category}” e-postalarını almayı bırakmak istiyor musunuz?",
        "Abonelikten çık",
        "Abonelikten çıktınız",
        "{address} adresine artık {brand} tarafından “{category}” e-postaları gönderilmeyecek.",
    ),
    "zh": UnsubscribeTexts(
        "退订",
        "不再接收 {brand} 发送至 {address} 的“{category}”邮件？",
        "退订",
        "您已退订",
        "{address} 将不再收到 {brand} 的“{category}”邮件。",
    ),
}
