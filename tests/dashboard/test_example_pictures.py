"""Screenshots of the mails of examples/templates, compared coarsely so that fonts of any machine pass.

Each is divided into fields whose luminance is compared. This checks the position and width of the card, on which side
text, figures and buttons begin, and dark mode; not the shapes of letters.
`python -m tests.dashboard.test_example_pictures` updates the expected values.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.dashboard.conftest import CHROMIUM, TabPool, sync_api
from tests.domain.test_template_examples import TEMPLATES, rendered

GOLDEN = Path(__file__).parent / "example_pictures.json"
SIZE = {"width": 620, "height": 480}
COLUMNS, ROWS = 20, 12
NEAR = 3.5  # maximum average luminance difference of two pictures' fields, out of 255
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


def read_luminance(page: Any, id_: str, locale: str, scheme: str) -> str:
    """Return the luminance of each field of the picture, as hexadecimal digits."""
    page.emulate_media(color_scheme=scheme)
    page.set_content(rendered(id_, locale).html)
    picture = b64encode(page.screenshot()).decode()
    return bytes(page.evaluate(LIGHT, f"data:image/png;base64,{picture}")).hex()


def difference(one: str, other: str) -> float:
    pairs = zip(bytes.fromhex(one), bytes.fromhex(other), strict=True)
    return fmean(abs(a - b) for a, b in pairs)


def picture_key(kind: Sequence[str]) -> str:
    return " ".join(kind)


def test_example_previews_match_golden_pictures(tabs: TabPool) -> None:
    golden: dict[str, str] = json.loads(GOLDEN.read_text())
    page = tabs.acquire(viewport=SIZE)
    try:
        assert {
            picture_key(item): far
            for item in KINDS
            if (far := difference(read_luminance(page, *item), golden[picture_key(item)])) > NEAR
        } == {}
    finally:
        tabs.release()


def test_golden_pictures_differ_by_direction_and_color_scheme() -> None:
    golden: dict[str, str] = json.loads(GOLDEN.read_text())
    assert all(difference(golden[f"{id_} en light"], golden[f"{id_} ar light"]) > NEAR for id_ in TEMPLATES)
    assert all(
        difference(golden[f"{RECEIPT} {of} light"], golden[f"{RECEIPT} {of} dark"]) > NEAR for of in ("en", "ar")
    )


if __name__ == "__main__":
    with sync_api.sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page(viewport=SIZE)
        pictures = {picture_key(one): read_luminance(page, *one) for one in KINDS}
    GOLDEN.write_text(json.dumps(pictures, indent=1) + "\n")
