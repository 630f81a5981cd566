"""Large requests are prepared outside the event loop: long texts, rendered texts, and files to decode."""

from typing import Any, cast

import pytest

from heliograph.accept.email import EmailRequest, estimate_size
from heliograph.domain.limits import PARSE_IN_THREAD_MIN

FILE = {"filename": "a.zip", "content": "A" * (PARSE_IN_THREAD_MIN + 4)}


@pytest.mark.parametrize(
    ("request_", "large"),
    [
        (EmailRequest(text="x"), False),
        (EmailRequest(html="x" * (PARSE_IN_THREAD_MIN + 1)), True),
        (EmailRequest(text="x", attachments=[FILE]), True),
        (EmailRequest(text="x", attachments=[{**FILE, "content": "A" * (PARSE_IN_THREAD_MIN // 2)}] * 3), True),
        (EmailRequest(text="x", attachments=[{**FILE, "content": "QQ=="}]), False),
    ],
)
def test_request_above_the_size_threshold_is_parsed_in_a_thread(request_: EmailRequest, large: bool) -> None:
    assert (estimate_size(cast(Any, None), request_) > PARSE_IN_THREAD_MIN) is large
