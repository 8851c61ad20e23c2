"""A killed gateway's streams are booked as far as they had come."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.ids import new_id
from gateway.ledger import progress
from gateway.ledger.progress import SLOTS_A_FILE, Progress, read_progress

KILLED = """
import os, signal, sys
from pathlib import Path
from gateway.ledger.progress import Progress

marks = Progress(Path(sys.argv[1]))
for name in sys.argv[2:]:
    marks.begin(name).note(len(name))
over = marks.begin("over")
over.note(7)
marks.end(over)
marks.begin("just begun")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_numbers_outlive_a_kill_9(tmp_path: Path) -> None:
    names = [new_id() for _ in range(3)]
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, *names])
    assert done.returncode == -signal.SIGKILL
    assert read_progress(tmp_path) == dict.fromkeys(names, 32) | {"just begun": 0}


def test_places_are_used_again_and_more_are_made(tmp_path: Path) -> None:
    marks = Progress(tmp_path)
    for _ in range(3):
        taken = {name: mark for name in (new_id() for _ in range(SLOTS_A_FILE + 1)) if (mark := marks.begin(name))}
        for number, mark in enumerate(taken.values()):
            mark.note(number)
        assert read_progress(tmp_path) == {name: number for number, name in enumerate(taken)}
        for mark in taken.values():
            marks.end(mark)
    assert len(list(tmp_path.iterdir())) == 2
    assert read_progress(tmp_path) == {}
    marks.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_costs_the_numbers_and_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    marks = Progress(tmp_path)
    monkeypatch.setattr(progress.os, "posix_fallocate", full)
    assert marks.begin(new_id()) is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert marks.begin(new_id()) is not None
    marks.close()
