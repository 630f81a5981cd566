"""Locales of a template: parses language tags, and chooses the language for a send (contract 18)."""

import re
from collections.abc import Collection

import msgspec

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Template
from heliograph.domain.text import quoted

# Groups of a BCP 47 tag: language, extended language, script, region, variants, extensions and private use.
_LANGUAGE_TAG = re.compile(
    r"([a-z]{2,3}(?P<extended>(?:-[a-z]{3}){1,3})?|[a-z]{5,8})(?:-(?P<script>[a-z]{4}))?"
    r"(?:-(?P<region>[a-z]{2}|[0-9]{3}))?(?P<variants>(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3})){0,3})"
    r"(?P<more>(?:-[a-wyz0-9](?:-[a-z0-9]{2,8}){1,20}){0,8}(?:-x(?:-[a-z0-9]{1,8}){1,20})?)"
)
_PRIVATE_USE_TAG = re.compile(r"x(?:-[a-z0-9]{1,8}){1,20}")
# Grandfathered tags that do not match the grammar.
_IRREGULAR_TAGS = frozenset(
    "en-gb-oed sgn-be-fr sgn-be-nl sgn-ch-de i-ami i-bnn i-default i-enochian i-hak i-klingon i-lux i-mingo i-navajo "
    "i-pwn i-tao i-tay i-tsu".split()
)


def read_locale(raw: str | None) -> str | None:
    """Return a language tag in BCP 47 case (`de-AT`, `zh-Hant-TW`); None if `raw` is None.

    Extensions are removed, because no stored text has any. Raises InvalidRequest if the tag is invalid.
    """
    if raw is None:
        return None
    tag = raw.lower()
    if match := _LANGUAGE_TAG.fullmatch(tag.removesuffix("-oed") if tag in _IRREGULAR_TAGS else tag):
        return _format_tag(match)
    if tag not in _IRREGULAR_TAGS and not _PRIVATE_USE_TAG.fullmatch(tag):
        raise InvalidRequest(
            f"{quoted(raw)} is no language tag. Send one such as en, de-AT or zh-Hant.", param="locale"
        )
    return tag


def normalize_tag(raw: str) -> str | None:
    """Return the tag in BCP 47 case; None if it is invalid or has an extended language, an extension or private use."""
    match = _LANGUAGE_TAG.fullmatch(raw.lower())
    return None if match is None or match["extended"] or match["more"] else _format_tag(match)


def _format_tag(match: re.Match[str]) -> str:
    language, script, region = match[1].partition("-")[0], match["script"] or "", match["region"] or ""
    return "-".join(filter(None, (language, script.title(), region.upper()))) + match["variants"]


def match_language(available: Collection[str], locale: str, default: str) -> str:
    """Return the language in `available` that fits best, removing subtags from the right; else `default`."""
    while locale and locale not in available:
        locale = locale.rpartition("-")[0]
    return locale or default


def localize(template: Template, locale: str | None) -> Template:
    """Return the template in the best matching language: `de-AT`, then `de`, then the template's own language."""
    if locale is None or not template.locales:
        return template
    language = match_language({*template.locales, template.locale}, locale, template.locale)
    if language == template.locale:
        return template
    parts = msgspec.structs.asdict(template.locales[language])
    translated = {name: source for name, source in parts.items() if source is not None}
    return msgspec.structs.replace(template, locale=language, **translated)
