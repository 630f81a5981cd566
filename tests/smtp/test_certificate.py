"""Log lines about a certificate that is renewed while the service runs."""

from pathlib import Path

from structlog.testing import capture_logs

from heliograph.smtp.certificate import FIX, Certificate
from tests.carriers.smtp_peer import Authority


def test_renewed_certificate_is_logged(tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    file.write_bytes(Authority().pem("127.0.0.1")[0])
    certificate = Certificate(file, file)
    with capture_logs() as logs:
        certificate.reload_if_changed()
        file.write_text("half written")
        certificate.reload_if_changed()
        file.write_bytes(Authority().pem("127.0.0.1")[0])
        certificate.reload_if_changed()
    assert [(item["log_level"], item["cert"], item["key"], item.get("fix")) for item in logs] == [
        ("error", str(file), str(file), FIX),
        ("info", str(file), str(file), None),
    ]
    assert "the old one stays in use" in logs[0]["event"]
