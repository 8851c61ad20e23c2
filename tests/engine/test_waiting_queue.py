"""Who is next: the better priority, then those that come back, then each fairness key in turn, then who came first."""

from hypothesis import given
from hypothesis import strategies as st

from engine.request import Request
from engine.types import GenerationRequest
from engine.waiting_queue import WaitingQueue


def request(
    name: str, turn: int, key: str = "", priority: int = 0, preempted: bool = False, index: int = 0, cost: int = 50
) -> Request:
    params = GenerationRequest(request_id=name, prompt_token_ids=[1] * cost, fairness_key=key, priority=priority)
    return Request(params, [1] * cost, cost, turn=turn, num_preemptions=int(preempted), index=index)


def drain(queue: WaitingQueue) -> list[str]:
    """Each is charged with its prompt, as if it were admitted and had run."""
    order = []
    while (head := queue.peek()) is not None:
        queue.remove(head)
        queue.charge(head.params.fairness_key, head.num_prompt)
        order.append(head.request_id)
    return order


def filled(*requests: Request) -> WaitingQueue:
    queue = WaitingQueue()
    for each in requests:
        queue.push(each)
    return queue


def test_a_busy_tenant_does_not_push_the_others_back() -> None:
    busy = [request(f"busy{i}", i, "busy") for i in range(4)]
    queue = filled(*busy, request("calm0", 4, "calm"), request("third0", 5, "third"), request("calm1", 6, "calm"))
    assert drain(queue) == ["busy0", "calm0", "third0", "busy1", "calm1", "busy2", "busy3"]


def test_turns_are_counted_in_tokens_not_in_requests() -> None:
    long = [request(f"long{i}", i, "long", cost=400) for i in range(3)]
    short = [request(f"short{i}", 3 + i, "short", cost=100) for i in range(8)]
    order = drain(filled(*long, *short))
    assert order[:2] == ["long0", "short0"]
    assert [name for name in order if name.startswith("long")] == ["long0", "long1", "long2"]
    assert order.index("long1") == 5, "four short ones cost as much as a long one"


def test_a_better_priority_goes_first_across_all_keys() -> None:
    queue = filled(request("a", 0, "x"), request("b", 1, "x", priority=-1), request("c", 2, "y", priority=-1))
    assert drain(queue) == ["b", "c", "a"]


def test_a_preempted_request_keeps_its_place_before_its_equals() -> None:
    queue = filled(
        request("new", 0, "x"),
        request("late", 3, "y", preempted=True),
        request("early", 1, "y", preempted=True),
        request("urgent", 4, "z", priority=-1),
    )
    assert drain(queue) == ["urgent", "early", "late", "new"]


def test_a_further_choice_goes_before_new_requests_at_the_place_of_the_first() -> None:
    queue = filled(
        request("new", 0), request("later", 5, preempted=True), request("b", 4, index=2), request("a", 4, index=1)
    )
    assert drain(queue) == ["a", "b", "later", "new"]


def test_keys_and_priorities_are_those_of_who_waits() -> None:
    queue = filled(request("a", 0, "x"), request("b", 1, "y", preempted=True), request("c", 2, "z", priority=-1))
    assert queue.priorities == [-1, 0]
    assert (queue.keys(-1), queue.keys(0), queue.keys(1)) == ({"z"}, {"x", "y"}, set())


def test_a_removed_request_is_gone_and_its_key_with_it() -> None:
    a, b = request("a", 0, "x"), request("b", 1, "y", preempted=True)
    queue = filled(a, b)
    queue.remove(b)
    queue.remove(a)
    assert len(queue) == 0
    assert queue.peek() is None


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(-1, 1), st.booleans()), max_size=12))
def test_nobody_is_lost(made: list[tuple[str, int, bool]]) -> None:
    queue = filled(*(request(str(i), i, *each) for i, each in enumerate(made)))
    assert len(queue) == len(list(queue)) == len(made)
    assert queue.priorities == sorted({priority for _, priority, _ in made})
    assert sorted(drain(queue), key=int) == [str(i) for i in range(len(made))]
