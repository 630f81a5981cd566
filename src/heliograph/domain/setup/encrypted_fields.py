"""Encrypted fields of setup records, keyed by encryption context. Pure functions."""

from collections.abc import Mapping

from msgspec.structs import replace

from heliograph.domain.setup.records import CarrierRecord, DkimKey, Key, SetupRecord, Webhook
from heliograph.domain.setup.secrets import is_encrypted


def ciphertexts(record: SetupRecord) -> dict[str, str]:
    match record:
        case Webhook(id=id_):
            texts = {context: getattr(record, name) for name, context in _webhook_contexts(id_).items()}
            return {context: text for context, text in texts.items() if text}
        case DkimKey(id=id_, sealed=sealed):
            return {f"dkim/{id_}": sealed}
        case Key(id=id_, secret=secret):
            return {f"hook/{id_}": secret} if secret else {}
        case CarrierRecord(id=id_, options=options):
            return {f"carrier/{id_}/{name}": value["sealed"] for name, value in options.items() if is_encrypted(value)}
    return {}


def with_ciphertexts(record: SetupRecord, texts: Mapping[str, str]) -> SetupRecord:
    """Return the record with ciphertexts from `texts`, keyed by encryption context; other fields are unchanged."""
    match record:
        case Webhook(id=id_):
            return replace(
                record, **{name: texts[context] for name, context in _webhook_contexts(id_).items() if context in texts}
            )
        case DkimKey(id=id_, sealed=sealed):
            return replace(record, sealed=texts.get(f"dkim/{id_}", sealed))
        case Key(id=id_, secret=secret):
            return replace(record, secret=texts.get(f"hook/{id_}", secret))
        case CarrierRecord(id=id_, options=options):
            new_texts = {name: texts.get(f"carrier/{id_}/{name}") for name in options}
            return replace(
                record,
                options={
                    name: {"sealed": new_texts[name]} if new_texts[name] else value for name, value in options.items()
                },
            )
    return record


def _webhook_contexts(id_: str) -> dict[str, str]:
    """Map each encrypted field of a webhook to its encryption context."""
    context_suffixes = {"old_secret": "old", "login": "login", "private_key": "key"}
    return {"secret": f"webhook/{id_}"} | {name: f"webhook/{id_}/{end}" for name, end in context_suffixes.items()}
