"""Verification texts: languages, the platform's own texts, the WebOTP line, and one SMS each."""

import pytest

from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.setup.setup_file import SetupError, parse_setup_file
from heliograph.domain.verify.verify_text import TEXT_BY_LANGUAGE, check_text, verify_text

GSM_7 = {"en", "da", "de", "es", "fi", "fr", "id", "it", "nb", "nl", "pl", "pt", "sv", "tr"}


@pytest.mark.parametrize("language", TEXT_BY_LANGUAGE)
def test_every_text_is_one_sms_with_brand_and_code(language: str) -> None:
    text = verify_text({}, language, "Acme Bank", "123456", "login.acme.test")
    assert check_text(TEXT_BY_LANGUAGE[language])
    assert "Acme Bank" in text
    assert text.count("123456") == 2
    assert "{" not in text
    assert count_segments(text).spec == 1
    assert count_segments(text).encoding == ("gsm7" if language in GSM_7 else "ucs2")


@pytest.mark.parametrize(
    ("own", "language", "expected"),
    [
        ({}, "de", "Acme: Ihr Code ist 042042. Er gilt 10 Minuten. Geben Sie ihn nicht weiter."),
        ({}, "de-AT", "Acme: Ihr Code ist 042042. Er gilt 10 Minuten. Geben Sie ihn nicht weiter."),
        ({}, "xx", "Acme: your code is 042042. It is valid for 10 minutes. Do not share it."),
        ({"en": "{{code}}!"}, "en", "042042!"),
        ({"en": "{{code}}!"}, "xx", "042042!"),
        ({"xx": "{{code}}?"}, "xx", "042042?"),
        ({"de-AT": "{{code}}?"}, "de-AT", "042042?"),
        ({"en": "{{code}} {{brand.name}} {{code}}"}, "en", "042042 Acme 042042"),
    ],
)
def test_verify_text_is_chosen_by_language(own: dict[str, str], language: str, expected: str) -> None:
    assert verify_text(own, language, "Acme", "042042") == expected


def test_verify_text_ends_with_the_autofill_line() -> None:
    text = verify_text({"en": "{{code}}"}, "en", "Acme", "042042", "acme.test")
    assert text == "042042\n@acme.test #042042"


def test_verify_text_does_not_expand_inserted_values() -> None:
    assert verify_text({"en": "{{brand.name}} {{code}}"}, "en", "{{code}}", "042042") == "{{code}} 042042"


@pytest.mark.parametrize("text", ["{{code}}", "{{brand.name}}: {{code}}", "{{code}}" + "x" * 152, "{code} {{code}}"])
def test_verify_text_of_the_platform_is_accepted(text: str) -> None:
    assert check_text(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "{{code}}"),
        ("your code", "{{code}}"),
        ("{{ code }}", "{{code}}"),
        ("{{code}}" + "x" * 153, "160"),
        ("{{code}} {{customer.name}}", "no placeholders"),
        ("{{code}} {{", "no placeholders"),
    ],
)
def test_verify_text_invalid_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_text(text)


# -- in the setup file -------------------------------------------------------------------------------------


def test_texts_language_and_domain_are_read() -> None:
    read = parse_setup_file(
        """
        [platform]
        verify_text = { en = "{{code}}", pt-BR = "{{brand.name}} {{code}}" }
        [[teams]]
        id = "team_a"
        verify = { language = "pt-BR", webotp = "Acme.TEST", conversion_guard = false }
        """,
        {},
    )
    assert read.platform["verify_text"] == {"en": "{{code}}", "pt-BR": "{{brand.name}} {{code}}"}
    assert read.teams[0]["verify"] == {"language": "pt-BR", "webotp": "acme.test", "conversion_guard": False}


def test_autofill_line_can_be_removed() -> None:
    read = parse_setup_file('[[teams]]\nid = "team_a"\nverify = { webotp = "" }', {})
    assert read.teams[0]["verify"] == {"webotp": ""}


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ('[platform]\nverify_text = { en = "your code" }', "platform.verify_text.en"),
        (f'[platform]\nverify_text = {{ en = "{{{{code}}}}{"x" * 153}" }}', "platform.verify_text.en"),
        ('[platform]\nverify_text = { en = "{{code}}\\n@evil.test #1" }', "platform.verify_text.en"),
        ('[platform]\nverify_text = { English = "{{code}}" }', "platform.verify_text.English"),
        ('[[teams]]\nid = "team_a"\nverify = { language = "English!" }', "teams[0].verify.language"),
        ('[[teams]]\nid = "team_a"\nverify = { webotp = "https://a.test" }', "teams[0].verify.webotp"),
        ('[[teams]]\nid = "team_a"\nverify = { conversion_guard = 1 }', "teams[0].verify.conversion_guard"),
    ],
)
def test_verify_text_invalid_in_the_setup_file_names_its_path(written: str, path: str) -> None:
    with pytest.raises(SetupError) as refused:
        parse_setup_file(written, {})
    assert f"{path}: " in str(refused.value)
