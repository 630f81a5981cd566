"""Mailbox providers by the names of their mail servers, and categories of refusals: few distinct labels."""

import pytest

from heliograph.domain.mail.mailbox_provider import DOMAINS_BY_PROVIDER, provider_of
from heliograph.inbound.policy.bounce_category import category_of


@pytest.mark.parametrize(
    ("names", "provider"),
    [
        (("gmail.com",), "google"),
        (("acme.test", "aspmx.l.google.com"), "google"),
        (("acme.test", "ALT1.ASPMX.L.GOOGLE.COM."), "google"),
        (("acme-test.mail.protection.outlook.com",), "microsoft"),
        (("mta5.am0.yahoodns.net",), "yahoo"),
        (("icloud.com", "127.0.0.1"), "apple"),
        (("notgoogle.com",), "other"),
        (("google.com.evil.example",), "other"),
        (("", None), "other"),
        ((), "other"),
    ],
)
def test_mailbox_provider_is_known_by_domain(names: tuple[str | None, ...], provider: str) -> None:
    assert provider_of(*names) == provider


def test_mailbox_providers_are_twelve_with_distinct_domains() -> None:
    assert len(DOMAINS_BY_PROVIDER) == 12
    domains = " ".join(DOMAINS_BY_PROVIDER.values()).split()
    assert len(domains) == len(set(domains))


@pytest.mark.parametrize(
    ("status", "enhanced", "text", "category"),
    [
        ("bounced", "5.7.1", "whatever", "recipient"),
        ("complained", None, "feedback report: abuse", "recipient"),
        ("failed", "5.2.2", "mailbox full", "recipient"),
        ("failed", "5.1.8", "bad sender", "policy"),
        ("failed", "5.7.1", "blocked by our policy", "policy"),
        ("failed", "5.7.1", "this looks like spam", "content"),
        ("failed", "5.3.4", "too big", "content"),
        ("failed", "5.6.0", "", "content"),
        ("failed", "5.4.4", "no route", "infrastructure"),
        ("failed", None, "550 message contains a virus", "content"),
        ("failed", None, "550 you are on a blacklist", "policy"),
        ("failed", None, "550 no such user", "recipient"),
        ("failed", None, "timed out", "infrastructure"),
        ("failed", None, None, "infrastructure"),
    ],
)
def test_mailbox_provider_reply_has_a_category(
    status: str, enhanced: str | None, text: str | None, category: str
) -> None:
    assert category_of(status, {"enhanced": enhanced, "text": text}) == category
