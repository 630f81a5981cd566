"""Locales of a template: language tags, and the choice of the language for a send (contract 18)."""

import re
from collections.abc import Collection

import msgspec

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Template
from heliograph.domain.text import quoted

# Groups of a BCP 47 tag: language, extended language, script, region, variants, extensions and private use.
_TAG = re.compile(
    r"([a-z]{2,3}(?P<extended>(?:-[a-z]{3}){1,3})?|[a-z]{5,8})(?:-(?P<script>[a-z]{4}))?"
    r"(?:-(?P<region>[a-z]{2}|[0-9]{3}))?(?P<variants>(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3})){0,3})"
    r"(?P<more>(?:-[a-wyz0-9](?:-[a-z0-9]{2,8}){1,20}){0,8}(?:-x(?:-[a-z0-9]{1,8}){1,20})?)"
)
_PRIVATE = re.compile(r"x(?:-[a-z0-9]{1,8}){1,20}")
# Grandfathered tags that do not match the grammar.
_IRREGULAR = frozenset(
    "en-gb-oed sgn-be-fr sgn-be-nl sgn-ch-de i-ami i-bnn i-default i-enochian i-hak i-klingon i-lux i-mingo i-navajo "
    "i-pwn i-tao i-tay i-tsu".split()
)


def read_locale(given: str | None) -> str | None:
    """Return a language tag in BCP 47 case (`de-AT`, `zh-Hant-TW`), without parts that texts are not stored by."""
    if given is None:
        return None
    tag = given.lower()
    if found := _TAG.fullmatch(tag.removesuffix("-oed") if tag in _IRREGULAR else tag):
        return _written(found)
    if tag not in _IRREGULAR and not _PRIVATE.fullmatch(tag):
        raise InvalidRequest(
            f"{quoted(given)} is no language tag. Send one such as en, de-AT or zh-Hant.", param="locale"
        )
    return tag


def written(given: str) -> str | None:
    """Return the tag in BCP 47 case; None if invalid or with an extended language, extension or private use."""
    found = _TAG.fullmatch(given.lower())
    return None if found is None or found["extended"] or found["more"] else _written(found)


def _written(found: re.Match[str]) -> str:
    language, script, region = found[1].partition("-")[0], found["script"] or "", found["region"] or ""
    return "-".join(filter(None, (language, script.title(), region.upper()))) + found["variants"]


def language_used(known: Collection[str], locale: str, own: str) -> str:
    """Return the best match among `known`, removing subtags from the right; `own` if there is none."""
    while locale and locale not in known:
        locale = locale.rpartition("-")[0]
    return locale or own


def in_locale(template: Template, locale: str | None) -> Template:
    """Return the template in the best matching language: `de-AT`, then `de`, then its own."""
    if locale is None or not template.locales:
        return template
    wanted = language_used({*template.locales, template.locale}, locale, template.locale)
    if wanted == template.locale:
        return template
    return msgspec.structs.replace(template, locale=wanted, **_given(template.locales[wanted]))


def _given(parts: msgspec.Struct) -> dict[str, str]:
    return {name: value for name, value in msgspec.structs.asdict(parts).items() if value is not None}
