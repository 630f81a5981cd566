"""What is told of a certificate that is renewed while the service runs."""

from pathlib import Path

from structlog.testing import capture_logs

from heliograph.smtp.certificate import MEND, Certificate
from tests.carriers.smtp_peer import Authority


def test_what_the_log_says_of_a_renewal(tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    file.write_bytes(Authority().pem("127.0.0.1")[0])
    certificate = Certificate(file, file)
    with capture_logs() as logs:
        certificate.renew()
        file.write_text("half written")
        certificate.renew()
        file.write_bytes(Authority().pem("127.0.0.1")[0])
        certificate.renew()
    assert [(one["log_level"], one["cert"], one["key"], one.get("mend")) for one in logs] == [
        ("error", str(file), str(file), MEND),
        ("info", str(file), str(file), None),
    ]
    assert "the old one still is" in logs[0]["event"]
