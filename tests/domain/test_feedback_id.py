"""The Feedback-ID of an email: its parts, and that the one of another instance is rejected."""

from heliograph.domain.mail.feedback_id import FeedbackSource, feedback_id_suffix, hash_team, parse_feedback_id

KEY = b"k" * 32


def test_feedback_id_names_its_source_and_hides_the_team() -> None:
    suffix = feedback_id_suffix(KEY, "team_acme", from_template=True)
    assert "acme" not in suffix
    assert parse_feedback_id(KEY, f"tpl_welcome:{suffix}") == FeedbackSource("tpl_welcome", hash_team(KEY, "team_acme"))
    assert suffix.split(":")[1] == "template"
    assert feedback_id_suffix(KEY, "team_acme", from_template=False).split(":")[1] == "direct"
    assert suffix.split(":")[2] == feedback_id_suffix(KEY, "team_other", from_template=False).split(":")[2]


def test_feedback_id_of_another_sender_is_refused() -> None:
    assert parse_feedback_id(b"other", f"direct:{feedback_id_suffix(KEY, 'team_acme', from_template=False)}") is None
    assert parse_feedback_id(KEY, "2") is None
    assert parse_feedback_id(KEY, "") is None
