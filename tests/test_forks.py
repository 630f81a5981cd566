"""A forked command behaves like a process: output, arguments, exit code and signals."""

import os
import signal
import subprocess

import pytest

from tests.forks import Forked


@pytest.mark.parametrize(("program", "code"), [("import os; os._exit(7)", 7), ("pass", 1), ("raise SystemExit(0)", 0)])
def test_forked_program_returns_its_exit_code(program: str, code: int) -> None:
    process = Forked(program, [], os.environ)
    assert process.wait(60) == process.poll() == code


def test_forked_program_has_its_own_arguments_and_ends_on_a_signal() -> None:
    output = "import os, sys, time; print(sys.argv[1:], dict(os.environ), flush=True); time.sleep(3600)"
    process = Forked(output, ["a", "b"], {"C": "d"})
    assert process.stdout.readline() == "['a', 'b'] {'C': 'd'}\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.stdout.close()
