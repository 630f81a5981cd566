"""One sentence about what a restricted API key may send, and labels of the values that its restrictions permit."""

from collections.abc import Mapping, Sequence

from heliograph.dashboard.render import channel_name
from heliograph.domain.sending.pricing import format_amount
from heliograph.domain.setup.key_restrictions import ANY
from heliograph.domain.setup.records import KeyRestrictions, Template

NAMED_MAX = 3  # if a list has more entries, only their number is shown


def describe_restrictions(restrictions: KeyRestrictions, templates: Mapping[str, Template], currency: str) -> str:
    """Return one sentence: channels, senders, recipients, templates, limits and approval."""
    lists = (restrictions.channels, restrictions.recipients, restrictions.templates)
    if () in lists or 0 in (restrictions.per_hour, restrictions.per_day):
        return "This key may not send anything."
    parts = [
        f"This key may send {_channels(restrictions.channels)}",
        _senders(restrictions.senders),
        f"to {_join(_patterns(restrictions.recipients), 'recipient entries')}" if restrictions.recipients else "",
        _templates(restrictions.templates, templates),
    ]
    limits = _limits(restrictions, currency)
    text = " ".join(part for part in parts if part) + (f", at most {_join(limits)}" if limits else "") + "."
    return f"{text} An owner must approve every message." if restrictions.approval else text


def entry_labels(name: str, entries: Sequence[str], templates: Mapping[str, Template]) -> list[str]:
    """Return the labels of the values that the restriction `name` permits, such as the names of templates."""
    if name == "channels":
        return ["Any" if entry == ANY else channel_name(entry) for entry in entries]
    if name == "templates":
        return ["Any" if entry == ANY else _template_name(entry, templates) for entry in entries]
    return [*entries]


def _channels(channels: Sequence[str] | None) -> str:
    if channels is None or ANY in channels:
        return "on every channel"
    texts = {"email": "email", "verify": "verification codes"}
    return _join([texts.get(channel) or channel_name(channel) for channel in channels])


def _senders(senders: Sequence[str] | None) -> str:
    if senders is None or ANY in senders:
        return ""
    return f"from {_join(_patterns(senders), 'senders')}" if senders else "(no emails)"


def _patterns(patterns: Sequence[str]) -> list[str]:
    """Return a text for each pattern of addresses or phone numbers."""
    if ANY in patterns:
        return ["anyone"]
    texts = []
    for pattern in patterns:
        if pattern.startswith("*@"):
            texts.append(f"any address at {pattern[2:]}")
        else:
            texts.append(f"numbers that start with {pattern[:-1]}" if pattern.endswith("*") else pattern)
    return texts


def _templates(entries: Sequence[str] | None, templates: Mapping[str, Template]) -> str:
    if entries is None or ANY in entries:
        return ""
    names = [_template_name(entry, templates) for entry in entries]
    noun = "the template" if len(names) == 1 else "the templates"
    return f"with {noun} {_join(names)}" if len(names) <= NAMED_MAX else f"with {len(names)} templates"


def _template_name(entry: str, templates: Mapping[str, Template]) -> str:
    return templates[entry].name if entry in templates else entry


def _limits(restrictions: KeyRestrictions, currency: str) -> list[str]:
    counts = [(restrictions.per_hour, "an hour"), (restrictions.per_day, "a day")]
    texts = [f"{count:,} {'recipient' if count == 1 else 'recipients'} {span}" for count, span in counts if count]
    if restrictions.spend_per_day is not None:
        texts.append(f"{format_amount(restrictions.spend_per_day)} {currency} a day")
    return texts


def _join(texts: Sequence[str], noun: str = "") -> str:
    """Join texts by commas and "and". With a noun, return only the number of texts if they are more than NAMED_MAX."""
    if noun and len(texts) > NAMED_MAX:
        return f"{len(texts)} {noun}"
    return " and ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part) if texts else ""
