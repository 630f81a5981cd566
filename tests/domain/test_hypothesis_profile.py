from hypothesis import settings


def test_hypothesis_profile_in_every_run_has_no_deadline() -> None:
    """`make test-rules` loads no conftest: without the profile, examples that take over 200 ms failed there."""
    assert settings().deadline is None
