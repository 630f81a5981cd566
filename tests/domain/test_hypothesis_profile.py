from hypothesis import settings


def test_hypothesis_profile_in_every_run_has_no_deadline() -> None:
    """`make test-rules` loads no conftest; there an example that took 200 ms on a slow machine failed."""
    assert settings().deadline is None
