"""Turns are counted in tokens, and nobody gets further ahead than the quantum and what is under way."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fair_queue import DeficitRoundRobin


def test_the_turn_stays_until_the_quantum_is_used_up() -> None:
    turns = DeficitRoundRobin(quantum=10)
    assert turns.next("ab") == "a"
    turns.charge("a", 9)
    assert turns.next("ab") == "a"
    turns.charge("a", 1)
    assert turns.next("ab") == "b"


def test_a_debt_is_paid_by_rounds_before_the_next_turn() -> None:
    turns = DeficitRoundRobin(quantum=10)
    assert turns.next("ab") == "a"
    turns.charge("a", 35)
    served = []
    for _ in range(4):
        served.append(turns.next("ab"))
        turns.charge(served[-1], 10)
    assert served == ["b", "b", "b", "a"]


def test_who_is_absent_pays_debts_and_saves_nothing_up() -> None:
    turns = DeficitRoundRobin(quantum=10)
    assert turns.next("a") == "a"
    turns.charge("a", 30)
    for _ in range(9):
        turns.charge(turns.next("b"), 10)
    assert turns.next("ab") == "a", "its debt is paid"
    turns.charge("a", 10)
    assert turns.next("ab") == "b"


def test_keys_that_are_seen_once_leave_nothing_behind() -> None:
    turns = DeficitRoundRobin(quantum=10)
    for guest in range(100):
        turns.charge(str(guest), 10)
        turns.charge(turns.next(["host"]), 10)
    assert len(turns._balances) <= 3


def test_debts_are_forgotten_together() -> None:
    turns = DeficitRoundRobin(quantum=10)
    turns.charge("a", 1000)
    turns.forget()
    assert turns.next("ab") == "a"


@given(
    costs=st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 300), min_size=1, max_size=5), min_size=2),
    quantum=st.integers(1, 64),
    num_running=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_keys_that_always_wait_stay_together(
    costs: dict[str, list[int]], quantum: int, num_running: int, seed: int
) -> None:
    """Requests are admitted by turns, and charged while they run, in any order."""
    rng = random.Random(seed)
    turns = DeficitRoundRobin(quantum)
    running: list[tuple[str, int]] = []
    served: Counter[str] = Counter(dict.fromkeys(costs, 0))
    for _ in range(400):
        while len(running) < num_running:
            key = turns.next(costs)
            running.append((key, rng.choice(costs[key])))
        key, cost = running.pop(rng.randrange(len(running)))
        part = rng.randint(1, cost)
        turns.charge(key, part)
        served[key] += part
        if cost > part:
            running.append((key, cost - part))
    bound = quantum + num_running * max(max(each) for each in costs.values())
    assert max(served.values()) - min(served.values()) <= bound


@pytest.mark.parametrize("num_keys", [1, 100])
def test_a_large_debt_is_paid_in_one_go(num_keys: int) -> None:
    turns = DeficitRoundRobin(quantum=1)
    keys = [str(i) for i in range(num_keys)]
    for key in keys:
        turns.charge(key, 10**9)
    assert turns.next(keys) == "0"
