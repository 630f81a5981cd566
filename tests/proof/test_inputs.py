"""P18 in full: the generated requests of tests/api/test_schemathesis.py, as many as promised for every endpoint."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.api import test_schemathesis as short
from tests.proof.size import FULL, report, size

if FULL:  # in short they run where they are
    from tests.api.test_schemathesis import test_generated_requests as test_generated_requests
    from tests.api.test_schemathesis import (
        test_generated_requests_with_names_that_exist as test_generated_requests_with_names_that_exist,
    )

REQUESTS = size("P18 requests")
KINDS = Counter([short.label(one) for one, _ in short.RUNS] + [f"POST {path}" for path in short.KNOWN])


@pytest.fixture(autouse=True)
def _as_many(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    given = request.node.callspec.params
    endpoint = f"POST {given['path']}" if "path" in given else short.label(given["operation"])
    monkeypatch.setattr(short, "EXAMPLES_EACH", -(-REQUESTS // KINDS[endpoint]))


@pytest.fixture(scope="module", autouse=True)
def _count() -> Iterator[None]:
    yield
    report("P18", f"up to {REQUESTS} generated requests for each of {len(KINDS)} endpoints")
