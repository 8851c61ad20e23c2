"""The journal keeps what it was given, through torn ends, damage and full disks, and lets go of what is done."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ledger import segment
from gateway.ledger.entries import decode_opened, decode_settled, encode_opened, encode_settled
from gateway.ledger.errors import LedgerError
from gateway.ledger.frames import Frame, encode_frame, read_frames
from gateway.ledger.journal import Journal
from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.ledger.recovery import find_orphans
from gateway.wire.usage import Usage


def read_all(path: Path, size: int = 1 << 20) -> list[Frame]:
    frames: list[Frame] = []
    offset, end = 0, False
    while not end:
        chunk = read_frames(path, offset, size)
        assert chunk.end or chunk.next_offset > offset
        frames += chunk.frames
        offset, end = chunk.next_offset, chunk.end
    return frames


def segments(journal: Journal) -> list[Path]:
    return sorted(journal.folder.glob("*.journal"))


def settled(identifier: str, **fields: object) -> RequestRecord:
    return RequestRecord(
        id=identifier, tenant_id="t", key_id="k", endpoint="embeddings", requested_model="m", started_at=1.0, **fields
    )


payloads = st.lists(st.binary(max_size=300), min_size=1, max_size=20)


@settings(deadline=None)
@given(payloads, st.integers(1, 400))
def test_frames_come_back_whatever_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes], size: int
) -> None:
    path = tmp_path_factory.mktemp("frames") / "0.journal"
    path.write_bytes(b"".join(encode_frame(index % 2 + 1, each) for index, each in enumerate(data)))
    assert [frame.payload for frame in read_all(path, size)] == data
    assert [frame.kind for frame in read_all(path, size)] == [index % 2 + 1 for index in range(len(data))]


@settings(deadline=None)
@given(payloads, st.data())
def test_a_torn_end_costs_only_itself(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes], draw: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("torn") / "0.journal"
    last = encode_frame(1, data[-1])
    cut = draw.draw(st.integers(0, len(last) - 1))
    path.write_bytes(b"".join(encode_frame(1, each) for each in data[:-1]) + last[:cut])
    assert [frame.payload for frame in read_all(path)] == data[:-1]


@settings(deadline=None)
@given(payloads, st.data())
def test_a_flipped_bit_costs_at_most_its_frame(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes], draw: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "0.journal"
    frames = [encode_frame(1, each) for each in data]
    hurt = draw.draw(st.integers(0, len(frames) - 1))
    bit = draw.draw(st.integers(0, len(frames[hurt]) * 8 - 1))
    broken = bytearray(frames[hurt])
    broken[bit // 8] ^= 1 << bit % 8
    path.write_bytes(b"".join([*frames[:hurt], bytes(broken), *frames[hurt + 1 :]]))
    found = [frame.payload for frame in read_all(path)]
    assert found == data[:hurt] + data[hurt + 1 :]


def test_records_come_back_as_they_were() -> None:
    usage = Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3, estimated=True)
    attempt = AttemptRecord(
        id="a", request_id="r", index=0, model="m", provider="p", upstream_model="u", started_at=1.5, usage=usage
    )
    decision = DecisionRecord(request_id="r", tier="small", reason="why", embedding=b"\0\1", signals=b'{"a": 1}')
    record = settled("r", attempts=(attempt,), decision=decision, usage=usage, user="日本語 🙂", similarity=0.5)
    frame = Frame(2, encode_settled(record)[11:])
    assert decode_settled(frame) == record
    assert decode_opened(Frame(1, encode_opened(attempt, record)[11:])) == (attempt, record)


def test_what_no_format_takes_is_booked_as_near_as_can_be() -> None:
    import numpy as np

    record = settled("r", user="half \ud800", usage=Usage(prompt_tokens=10**30), similarity=np.float32(0.5))
    found = decode_settled(Frame(2, encode_settled(record)[11:]))
    assert found.user == "half ?"
    assert found.usage.prompt_tokens == 2**63 - 1
    assert found.similarity == 0.5


def test_frames_are_in_the_file_when_append_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path, fsync_ms=10_000)
    journal.append_opened("r1", encode_frame(1, b"opened"))
    hold = journal.append_settled("r1", encode_frame(2, b"settled"))
    assert [frame.payload for frame in read_all(segments(journal)[0])] == [b"opened", b"settled"]
    journal.release(hold)
    journal.close()
    assert list(tmp_path.iterdir()) == []  # all was done: nothing stays


@pytest.mark.parametrize("fsync_ms", [0, 5])
def test_segments_go_when_all_they_hold_is_done(tmp_path: Path, fsync_ms: int) -> None:
    journal = Journal(tmp_path, fsync_ms, segment_bytes=200)
    journal.append_opened("slow", encode_frame(1, b"x" * 50))
    holds = []
    for number in range(20):
        journal.append_opened(f"r{number}", encode_frame(1, b"x" * 50))
        holds.append(journal.append_settled(f"r{number}", encode_frame(2, b"x" * 50)))
    assert journal.num_segments == len(segments(journal)) > 5
    for hold in holds:
        journal.release(hold)
    kept = segments(journal)
    assert len(kept) == journal.num_segments == 2  # the first, for the request that still runs, and the one written to
    assert kept[0].name == "00000001.journal"
    journal.release(journal.append_settled("slow", encode_frame(2, b"x")))
    assert len(segments(journal)) == 1
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_done_stays_for_the_next_start_and_belongs_to_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append_settled("r1", encode_frame(2, b"settled"))
    assert find_orphans(tmp_path) == []  # its owner lives
    journal.close()
    (orphan,) = find_orphans(tmp_path)
    assert find_orphans(tmp_path) == []  # and now it has another
    assert orphan.folder == journal.folder
    orphan.close(delete=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerError, match=r"journal can't be written in .*file"):
        Journal(tmp_path / "file")


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from gateway.ledger.frames import encode_frame, read_frames
from gateway.ledger.journal import Journal

def payloads():
    paths = sorted(journal.folder.glob("*.journal"))
    return [frame.payload.decode() for path in paths for frame in read_frames(path).frames]

journal = Journal(Path(sys.argv[1]), fsync_ms=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # the file can't grow any more
holds = {}
for number in range(40):
    journal.append_opened(f"r{number}", encode_frame(1, f"opened {number}".encode() + b"." * 5000))
    holds[number] = journal.append_settled(f"r{number}", encode_frame(2, f"settled {number}".encode() + b"." * 5000))
report = {"error": journal.error, "written": len(payloads()), "unwritten": journal.num_unwritten}
journal.release(holds[39])  # got into SQL meanwhile: need not be written any more
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal._retry_at = 0.0
journal.retry()
report |= {"error after": journal.error, "after": [each.rstrip(".") for each in payloads()]}
print(json.dumps(report))
"""


def test_a_full_disk_loses_nothing_that_is_in_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["error"] is not None
    assert 0 < report["written"] < 20
    assert report["unwritten"] > 20
    assert report["error after"] is None
    everything = [f"{what} {number}" for number in range(39) for what in ("opened", "settled")]
    assert sorted(report["after"]) == sorted(everything)


def test_a_device_that_takes_nothing_is_an_error_state_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = Journal(tmp_path, fsync_ms=0)
    monkeypatch.setattr(segment.os, "posix_fallocate", full)
    hold = journal.append_settled("r1", encode_frame(2, b"settled" * segment.STEP))
    assert journal.error == "No space left on device"
    assert journal.num_unwritten == 1
    assert not journal.forget(hold)  # memory has the only copy
    journal.release(hold)
    assert journal.num_unwritten == 0
