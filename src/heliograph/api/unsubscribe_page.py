"""/unsubscribe/<token>: the page linked from emails, and one-click unsubscription (RFC 8058).

A GET changes nothing, because mail clients and scanners follow links. A POST unsubscribes, whatever its body contains.
"""

from contextlib import suppress

from heliograph.api.call import Call
from heliograph.api.documents import HTML, PAGE_HEADERS
from heliograph.domain.mail.sender import default_brand_values
from heliograph.domain.mail.unsubscribe import UnsubscribeLink, parse_link
from heliograph.domain.refusals import NotFound, Refusal
from heliograph.domain.verify.verify_text import DEFAULT_LANGUAGE, text_for_language
from heliograph.manage import unsubscribes
from heliograph.templates.policy.formats import is_right_to_left
from heliograph.texts.unsubscribe_page import TEXTS_BY_LANGUAGE, UnsubscribeTexts
from heliograph.web.html import create_environment
from heliograph.web.request import Response

_NO_INDEX = [(b"cache-control", b"no-store"), (b"referrer-policy", b"no-referrer"), (b"x-robots-tag", b"noindex")]
_page = create_environment("heliograph.api").get_template("unsubscribe.html")


async def show(call: Call) -> Response:
    return _render(call, _read_link(call), is_done=False)


async def unsubscribe(call: Call) -> Response:
    link = _read_link(call)
    with suppress(Refusal):  # the body is irrelevant, even if it is too large
        if call.read_body:
            await call.read_body()
    await unsubscribes.follow_link(call.context.store, link)
    return _render(call, link, is_done=True)


def _read_link(call: Call) -> UnsubscribeLink:
    link = parse_link(call.context.reply_key, call.params["token"])
    if link is None or link.team not in call.context.store.setup.current.teams:
        raise NotFound("This unsubscribe link is not valid. Use the whole link of the email.")
    return link


def _render(call: Call, link: UnsubscribeLink, *, is_done: bool) -> Response:
    setup = call.context.store.setup.current
    language, texts = _texts(link.locale)
    brand = default_brand_values(setup.teams[link.team], setup.platform)["name"]
    html = _page.render(
        language=language,
        is_right_to_left=is_right_to_left(language),
        texts=texts.fill(brand, link.category, link.address),
        is_done=is_done,
    )
    return Response(200, html.encode(), [*PAGE_HEADERS, *_NO_INDEX], HTML)


def _texts(locale: str) -> tuple[str, UnsubscribeTexts]:
    """Return the page's texts in the best available language, and this language."""
    language = locale.partition("-")[0]
    texts = text_for_language(TEXTS_BY_LANGUAGE, locale) or TEXTS_BY_LANGUAGE[DEFAULT_LANGUAGE]
    return (language if language in TEXTS_BY_LANGUAGE else DEFAULT_LANGUAGE), texts
