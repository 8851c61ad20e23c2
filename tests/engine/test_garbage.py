"""The collector is as it was before, whatever happens while it is paused."""

import gc

import pytest

from engine.garbage import collector_paused


def test_it_rests_inside_and_works_afterwards() -> None:
    assert gc.isenabled()
    with collector_paused(), collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(ValueError, match="damaged"), collector_paused():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_who_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
