"""Maps the hosts and domains of a dozen large mailbox providers to names, so that metrics have few labels."""

from functools import lru_cache

OTHER = "other"
SIMULATOR = "simulator"

# Provider → domains of its MX hosts and of its own mailboxes; the latter need no DNS query.
DOMAINS_BY_PROVIDER = {
    "google": "google.com googlemail.com gmail.com psmtp.com",
    "microsoft": "outlook.com hotmail.com live.com msn.com office365.us partner.outlook.cn",
    "yahoo": "yahoodns.net yahoo.com ymail.com rocketmail.com aol.com",
    "apple": "icloud.com me.com mac.com apple.com",
    "proofpoint": "pphosted.com ppe-hosted.com ppops.net proofpoint.com",
    "mimecast": "mimecast.com mimecast.co.za mimecast-offshore.com",
    "gmx": "gmx.net gmx.de gmx.com web.de mail.com kundenserver.de ionos.com",
    "proton": "protonmail.ch protonmail.com proton.me pm.me",
    "fastmail": "messagingengine.com fastmail.com",
    "zoho": "zoho.com zoho.eu zoho.in zohomail.com",
    "yandex": "yandex.net yandex.ru yandex.com ya.ru",
    "mailru": "mail.ru inbox.ru list.ru bk.ru",
}
_PROVIDER_BY_DOMAIN = {domain: name for name, domains in DOMAINS_BY_PROVIDER.items() for domain in domains.split()}


def provider_of(*names: str | None) -> str:
    """Return the mailbox provider of the first host or domain with a known provider; "other" if there is none."""
    for name in names:
        if name and (provider := provider_of_name(name)) != OTHER:
            return provider
    return OTHER


@lru_cache(maxsize=4096)
def provider_of_name(name: str) -> str:
    """Return the mailbox provider of a host or domain; "other" if unknown."""
    labels = name.lower().rstrip(".").split(".")
    domains = (".".join(labels[start:]) for start in range(len(labels)))
    return next((_PROVIDER_BY_DOMAIN[domain] for domain in domains if domain in _PROVIDER_BY_DOMAIN), OTHER)
