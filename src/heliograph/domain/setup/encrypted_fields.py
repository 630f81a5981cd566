"""Encrypted fields of setup records, keyed by encryption context. Pure functions."""

from collections.abc import Mapping

from msgspec.structs import replace

from heliograph.domain.setup.records import CarrierRecord, DkimKey, Key, Setting, Webhook
from heliograph.domain.setup.secrets import is_sealed


def texts_of(record: Setting) -> dict[str, str]:
    match record:
        case Webhook(id=id_):
            texts = {context: getattr(record, name) for name, context in _of_webhook(id_).items()}
            return {context: text for context, text in texts.items() if text}
        case DkimKey(id=id_, sealed=sealed):
            return {f"dkim/{id_}": sealed}
        case Key(id=id_, secret=secret):
            return {f"hook/{id_}": secret} if secret else {}
        case CarrierRecord(id=id_, options=options):
            return {f"carrier/{id_}/{name}": one["sealed"] for name, one in options.items() if is_sealed(one)}
    return {}


def with_texts(record: Setting, texts: Mapping[str, str]) -> Setting:
    """Return the record with its ciphertexts replaced by `texts`; contexts not in `texts` keep theirs."""
    match record:
        case Webhook(id=id_):
            return replace(record, **{name: texts[at] for name, at in _of_webhook(id_).items() if at in texts})
        case DkimKey(id=id_, sealed=sealed):
            return replace(record, sealed=texts.get(f"dkim/{id_}", sealed))
        case Key(id=id_, secret=secret):
            return replace(record, secret=texts.get(f"hook/{id_}", secret))
        case CarrierRecord(id=id_, options=options):
            fresh = {name: texts.get(f"carrier/{id_}/{name}") for name in options}
            return replace(
                record, options={name: {"sealed": fresh[name]} if fresh[name] else one for name, one in options.items()}
            )
    return record


def _of_webhook(id_: str) -> dict[str, str]:
    """Map each encrypted field of a webhook to its context."""
    more = {"old_secret": "old", "login": "login", "private_key": "key"}
    return {"secret": f"webhook/{id_}"} | {name: f"webhook/{id_}/{end}" for name, end in more.items()}
