"""Languages of a template: which of them a send is written in (contract 18)."""

import re
from collections.abc import Collection

import msgspec

from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.records import Template
from heliograph.rules.text import quoted

# Language, script, region and variants of BCP 47; extensions and private use have no texts here.
_TAG = re.compile(
    r"([a-z]{2,3}|[a-z]{5,8})(?:-([a-z]{4}))?(?:-([a-z]{2}|[0-9]{3}))?((?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3})){0,3})"
)


def read_locale(given: str | None) -> str | None:
    """Write a tag as BCP 47 does (`de-AT`, `zh-Hant-TW`), however it was given."""
    if given is None:
        return None
    locale = written(given)
    if locale is None:
        raise InvalidRequest(
            f"{quoted(given)} is no language tag. Send one such as en, de-AT or zh-Hant.", param="locale"
        )
    return locale


def written(given: str) -> str | None:
    found = _TAG.fullmatch(given.lower())
    if found is None:
        return None
    language, script, region, variants = found.groups()
    return "-".join(filter(None, (language, script and script.title(), region and region.upper()))) + variants


def language_used(known: Collection[str], locale: str, own: str) -> str:
    """Return the nearest of the known languages, without its region and script in turn; else `own`."""
    while locale and locale not in known:
        locale = locale.rpartition("-")[0]
    return locale or own


def in_locale(template: Template, locale: str | None) -> Template:
    """Return the template with the words of the nearest language that it has: `de-AT`, then `de`, then its own."""
    if locale is None or not template.locales:
        return template
    wanted = language_used({*template.locales, template.locale}, locale, template.locale)
    if wanted == template.locale:
        return template
    return msgspec.structs.replace(template, locale=wanted, **_given(template.locales[wanted]))


def _given(parts: msgspec.Struct) -> dict[str, str]:
    return {name: value for name, value in msgspec.structs.asdict(parts).items() if value is not None}
