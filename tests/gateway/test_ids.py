"""Ids: unique, in the order of time, and never the same in two processes."""

import os

from gateway.ids import id_at, new_id


def test_ids_are_version_7_and_differ():
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(len(each) == 32 and each[12] == "7" and each[16] in "89ab" for each in ids)


def test_ids_sort_by_their_time():
    before, made, after = id_at(0.0), new_id(), id_at()
    assert before < made < after


def test_a_forked_process_makes_other_ids():
    new_id()  # some random bytes are left for ids to come
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_id()[13:].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 64).decode() != new_id()[13:]
