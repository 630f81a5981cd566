"""`heliograph audit`: an end that was noted shows that the log was hashed anew."""

from pathlib import Path

import apsw
import msgspec

from tests.cli.conftest import Run


def test_a_noted_end_holds_until_the_log_is_written_anew(run: Run, tmp_path: Path) -> None:
    assert run("audit", "head").out == "0\n"
    assert run("pause").code == 0
    place, link = run("audit", "head").out.split()
    assert (place, len(link)) == ("1", 64)
    assert msgspec.json.decode(run("audit", "head", "--json").out) == {"place": 1, "link": link}
    assert run("resume").code == 0
    held = run("audit", "check", place, link)
    assert (held.code, held.out) == (0, "entry 1 has this link\n")
    file = apsw.Connection(str(tmp_path / "heliograph.db"))
    file.execute("UPDATE audit SET link = 'forged' WHERE place = 1")
    anew = run("audit", "check", place, link)
    assert anew.code == 1
    assert anew.out.startswith("entry 1 does not have this link: its link is forged. The log was written anew")
    assert "there is none" in run("audit", "check", "9", link).out
    file.execute("DELETE FROM audit_head")
    file.close()
    gone = run("audit", "head")
    assert (gone.code, "the end of the chain was removed" in gone.err) == (1, True)
