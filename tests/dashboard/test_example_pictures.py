"""Pictures of the mails of examples/templates in a browser, coarse enough for the fonts of any machine.

Each is cut into fields and compared by their light. That proves where the card stands and how wide it is, on which side
text, figures and buttons begin, and that dark is dark; not the shapes of letters.
`python -m tests.dashboard.test_example_pictures` writes them anew.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.dashboard.conftest import CHROMIUM, Tabs, sync_api
from tests.domain.test_template_examples import TEMPLATES, written

GOLDEN = Path(__file__).parent / "example_pictures.json"
SIZE = {"width": 620, "height": 480}
COLUMNS, ROWS = 20, 12
NEAR = 3.5  # of 255: how far the fields of two pictures are apart on average, whatever the fonts
RECEIPT = "tpl_shop_receipt"
KINDS = [*product(TEMPLATES, ("en", "ar"), ("light",)), *product((RECEIPT,), ("en", "ar"), ("dark",))]
LIGHT = f"""async picture => {{
  const image = new Image();
  image.src = picture;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), {{width: {COLUMNS}, height: {ROWS}}});
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, {COLUMNS}, {ROWS});
  return Array.from(context.getImageData(0, 0, {COLUMNS}, {ROWS}).data).filter((_, at) => at % 4 == 1);
}}"""


def seen(page: Any, id_: str, locale: str, scheme: str) -> str:
    """Return the light of the picture's fields, as hexadecimal digits."""
    page.emulate_media(color_scheme=scheme)
    page.set_content(written(id_, locale).html)
    picture = b64encode(page.screenshot()).decode()
    return bytes(page.evaluate(LIGHT, f"data:image/png;base64,{picture}")).hex()


def apart(one: str, other: str) -> float:
    pairs = zip(bytes.fromhex(one), bytes.fromhex(other), strict=True)
    return fmean(abs(a - b) for a, b in pairs)


def key(kind: Sequence[str]) -> str:
    return " ".join(kind)


def test_they_look_as_they_did(tabs: Tabs) -> None:
    golden: dict[str, str] = json.loads(GOLDEN.read_text())
    page = tabs.take(viewport=SIZE)
    try:
        assert {key(one): far for one in KINDS if (far := apart(seen(page, *one), golden[key(one)])) > NEAR} == {}
    finally:
        tabs.give_back()


def test_the_pictures_tell_the_sides_and_the_schemes_apart() -> None:
    golden: dict[str, str] = json.loads(GOLDEN.read_text())
    assert all(apart(golden[f"{id_} en light"], golden[f"{id_} ar light"]) > NEAR for id_ in TEMPLATES)
    assert all(apart(golden[f"{RECEIPT} {of} light"], golden[f"{RECEIPT} {of} dark"]) > NEAR for of in ("en", "ar"))


if __name__ == "__main__":
    with sync_api.sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page(viewport=SIZE)
        pictures = {key(one): seen(page, *one) for one in KINDS}
    GOLDEN.write_text(json.dumps(pictures, indent=1) + "\n")
