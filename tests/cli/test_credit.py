import pytest

from .conftest import Run


def test_credit_is_added_and_subtracted(run: Run, example: str) -> None:
    run("apply", example)
    added = run("credit", "team_acme", "25.00", "--note", "invoice 1042")
    before = added.out
    assert (added.code, added.err) == (0, "")
    assert before.startswith("team_acme has a credit of ")
    assert run("credit", "team_acme", "-5.00").code == 0
    assert run("credit", "team_acme", "5").out == before


@pytest.mark.parametrize(
    ("team", "amount", "said"),
    [
        ("team_x", "1.00", "There is no team team_x."),
        ("team_acme", "much", "'much' is not an amount"),
        ("team_acme", "--5", "is not an amount"),
        ("team_acme", "0", "the amount must not be 0"),
        ("team_acme", "-1000000", "the credit is only "),
    ],
)
def test_invalid_amounts_are_refused(run: Run, example: str, team: str, amount: str, said: str) -> None:
    run("apply", example)
    ended = run("credit", team, amount)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
