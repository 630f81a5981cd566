"""Compares a draft with the template in use, by rendering both with the variables of a message that was sent."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Literal

import msgspec

from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Layout, Segmenting, Template
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.render import Rendered, render
from heliograph.templates.policy.source import PARTS
from heliograph.templates.policy.values import check_variables, read_variables, with_unsubscribe_url

LINE_MAX = 200  # characters of a changed line that are shown

TrialResult = Literal["fails", "grows", "changes", "same"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of the template in use and its draft, rendered with the variables of one message."""

    result: TrialResult
    error: str = ""  # why a send with the draft would be refused
    part: str = ""  # name of the first part that differs, such as `subject`
    before: str = ""  # first line of `part` that differs, as rendered with the template in use
    after: str = ""  # the same line as rendered with the draft
    segments: tuple[int, int] = (1, 1)  # number of SMS segments with the template in use, and with the draft


def try_draft(
    draft: Template,
    live: Template,
    variables: dict[str, Any],
    *,
    locale: str | None,
    brand: Mapping[str, str],
    layouts: Mapping[str, Layout],
    unsubscribe_url: str = "",
    segmenting: Segmenting = "spec",
) -> Trial:
    def render_with(template: Template) -> Rendered:
        localized = localize(template, locale)
        check_variables(localized, values)
        with_url = with_unsubscribe_url(localized, values, unsubscribe_url) if unsubscribe_url else values
        return render(localized, with_url, brand, layouts.get(localized.layout or ""))

    values = read_variables(variables)
    try:
        after = render_with(draft)
    except Refusal as refusal:
        return Trial(result="fails", error=refusal.message)
    try:
        before = render_with(live)
    except Refusal:  # the template in use has changed since the message was sent
        before = Rendered(subject=None, html=None, text=None, body=None)
    segments = (1, 1)
    if draft.channel == "sms":
        first, second = (count_segments(rendered.body or "").billed(segmenting) for rendered in (before, after))
        segments = first, second
    for part in PARTS:
        old, new = getattr(before, part) or "", getattr(after, part) or ""
        if old != new:
            old_line, new_line = _first_difference(old, new)
            result: TrialResult = "grows" if segments[1] > segments[0] else "changes"
            return Trial(result=result, part=part, before=old_line, after=new_line, segments=segments)
    return Trial(result="same", segments=segments)


def _first_difference(old: str, new: str) -> tuple[str, str]:
    """Return the first line that differs, from each text; empty if a text has fewer lines.

    A longer line is cut to the part around the first difference.
    """
    old_lines, new_lines = old.splitlines(), new.splitlines()
    count = max(len(old_lines), len(new_lines))
    padded_old, padded_new = (lines + [""] * (count - len(lines)) for lines in (old_lines, new_lines))
    pairs = zip(padded_old, padded_new, strict=True)
    before, after = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    start = max(0, equal - LINE_MAX // 2)
    return _cut(before, start), _cut(after, start)


def _cut(line: str, start: int) -> str:
    return ("…" if start else "") + line[start : start + LINE_MAX]
