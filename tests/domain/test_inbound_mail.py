"""Inbound mail: the truncated record in its event, and the complete record of a read."""

import unicodedata
from email.header import Header

import pytest

from heliograph.inbound.policy.inbound_mail import (
    EVENT_RECORD_MAX,
    Authentication,
    ParsedMail,
    full_texts,
    parse_mail,
    to_event_record,
    to_record,
    with_full_texts,
)

PART = "--b\r\nContent-Type: text/{0}; name={1}\r\nContent-Disposition: attachment\r\nContent-ID: <{0}>\r\n\r\nx\r\n"


def test_inbound_mail_too_large_for_an_event_is_marked_and_read_in_full() -> None:
    parts = "".join(PART.format("x" * 1500, f"{number:0>190}") for number in range(100))
    mail = f"From: a@example.com\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n{parts}--b--\r\n"
    read = parse_mail(mail.encode(), sender="a@example.com", recipients=[])
    full = to_record("rcv_1", read, [], None, Authentication())
    short = to_event_record(full)
    assert len(full.attachments) == 100 > len(short.attachments)
    assert (full.truncated, short.truncated) == (False, True)
    assert sum(len(item.content_type) for item in short.attachments) < EVENT_RECORD_MAX
    assert with_full_texts(short, full_texts(full)) == full


@pytest.mark.parametrize(
    ("parts", "people", "is_cut"), [(100, 100, False), (101, 1, True), (300, 1, True), (1, 101, True)]
)
def test_inbound_mail_beyond_the_limits_is_marked_truncated(parts: int, people: int, is_cut: bool) -> None:
    files = "".join(PART.format("plain", number) for number in range(parts))
    to = ", ".join(f"a{number}@example.com" for number in range(people))
    mail = f"From: a@example.com\r\nTo: {to}\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n{files}--b--\r\n"
    read = parse_mail(mail.encode(), sender="a@example.com", recipients=[])
    assert (read.is_truncated, len(read.attachments), len(read.to)) == (is_cut, min(parts, 100), min(people, 100))


def received(subject: str = "Hello", charset: str = "utf-8", body: bytes = b"Hello") -> ParsedMail:
    head = f"From: a@example.com\r\nSubject: {subject}\r\nContent-Type: text/plain; charset={charset}\r\n\r\n"
    return parse_mail(head.encode() + body, sender="a@example.com", recipients=[])


AUTOMATIC = """
Automatic reply: Your order
Auto-Reply: hello
Autoreply: hello
Automated response
Auto: Your invoice
Out of Office
Out of Office: back on Monday
Out of the office (was: hello)
Out of Office Re: hello
Out of Office AutoReply: hello
Automatische Antwort: Ihre Bestellung
Abwesenheitsnotiz: Urlaub
Abwesenheitsnotiz
Réponse automatique : Votre commande
Message d'absence
Absence du bureau
Respuesta automática: Su pedido
Fuera de la oficina
Resposta automática: Seu pedido
Risposta automatica: Ordine
Fuori ufficio: ordine
Automatisch antwoord: bestelling
Afwezigheidsbericht
Autosvar: Din ordre
Automatiskt svar: Din order
Automatisk svar: Din ordre
Automaattinen vastaus: Tilaus
Automatyczna odpowiedź: Zamówienie
Odpowiedź automatyczna: Zamówienie
Automatická odpověď: Objednávka
Automatická odpoveď: Objednávka
Automatikus válasz: Rendelés
Răspuns automat: Comanda
Автоматический ответ: Заказ
Автоответ: Заказ
Автоматична відповідь: Замовлення
Автоматичен отговор: Поръчка
Αυτόματη απάντηση: Παραγγελία
Otomatik yanıt: Sipariş
Automatski odgovor: Narudžba
Samodejni odgovor: Naročilo
رد تلقائي: الطلب
מענה אוטומטי: ההזמנה
自動応答: 注文
自動返信: 注文
不在通知
自动答复: 订单
自动回复: 订单
自動回覆: 訂單
자동 회신: 주문
부재중: 주문
Trả lời tự động: Đơn hàng
Balasan otomatis: pesanan
ตอบกลับอัตโนมัติ: คำสั่งซื้อ
""".strip().splitlines()
BY_PEOPLE = """
Re: Automatic reply: Your order
AW: Abwesenheitsnotiz
Automatic doors are broken
Automation of replies
Out of office next week, can you cover?
Absence of our delivery
Ausencia de stock
Vacation photos
My automatic reply does not work
Abwesend war nur der Chef
自動車
외출
""".strip().splitlines()


@pytest.mark.parametrize("subject", AUTOMATIC)
def test_mail_with_auto_reply_subject_is_automatic(subject: str) -> None:
    assert received(subject).automatic
    assert received(Header(subject, "utf-8").encode()).automatic
    assert received(unicodedata.normalize("NFD", subject)).automatic


@pytest.mark.parametrize("subject", BY_PEOPLE)
def test_mail_with_ordinary_subject_is_not_automatic(subject: str) -> None:
    assert not received(subject).automatic


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("utf-7", b"Gr+APwA3w-e", "Gr\xfc\xdfe"),
        ("UTF-7", b"A+ImIDkQ-.", "A\u2262\u0391."),
        ("unicode-1-1-utf-7", b"Hi Mom +Jjo-!", "Hi Mom \u263a!"),
        ("utf-7", b"2 +- 2 = 4", "2 + 2 = 4"),
        ("utf-7", b"+2D3eAA-", "\U0001f600"),
        ("utf-7", b"+2AA-", "\ufffd"),  # a lone surrogate, which databases reject
        ("utf-7", b"a +\xff b", "a \ufffd b"),  # not UTF-7
        ("utf-8", b"+ADw-script+AD4-", "+ADw-script+AD4-"),  # decoded as UTF-7 only if declared
    ],
)
def test_utf7_body_is_decoded(charset: str, body: bytes, text: str) -> None:
    assert received(charset=charset, body=body).text == text
