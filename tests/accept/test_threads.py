"""What is large is drafted off the event loop: text, rendered text, and files to decode."""

from typing import Any, cast

import pytest

from heliograph.accept.email import EmailRequest, weigh_email
from heliograph.domain.limits import IN_THREAD

FILE = {"filename": "a.zip", "content": "A" * (IN_THREAD + 4)}


@pytest.mark.parametrize(
    ("request_", "large"),
    [
        (EmailRequest(text="x"), False),
        (EmailRequest(html="x" * (IN_THREAD + 1)), True),
        (EmailRequest(text="x", attachments=[FILE]), True),
        (EmailRequest(text="x", attachments=[{**FILE, "content": "A" * (IN_THREAD // 2)}] * 3), True),
        (EmailRequest(text="x", attachments=[{**FILE, "content": "QQ=="}]), False),
    ],
)
def test_what_is_large(request_: EmailRequest, large: bool) -> None:
    assert (weigh_email(cast(Any, None), request_) > IN_THREAD) is large
