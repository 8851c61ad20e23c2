"""How an answer ends: by its tokens, its text, its length and its context."""

from toy_engine import ask, check_books, make, script, text, tokens
from toy_runner import EOS, ToyRunner

from engine.types import Delta


def test_the_end_token_ends_with_stop_and_counts() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"hi", EOS)})), [1])
    assert (text(answer), answer[-1].finish_reason, tokens(answer)) == ("hi", "stop", [*b"hi", EOS])
    check_books(answer, 1)


def test_an_ignored_end_token_does_not_end() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"a", EOS, b"b")})), [1], ignore_eos=True, max_tokens=3)
    assert (text(answer), answer[-1].finish_reason) == ("ab", "length")


def test_a_stop_token_ends_and_is_not_shown() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"ab!c")})), [1], stop_token_ids=(ord("!"),))
    assert (text(answer), answer[-1].finish_reason, len(tokens(answer))) == ("ab", "stop", 3)


def test_a_stop_string_ends_before_itself() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"one\nDEFX two DEFGHIJ three")})), [1], stop=("DEFGHIJ",))
    assert (text(answer), answer[-1].finish_reason) == ("one\nDEFX two ", "stop")
    check_books(answer, 1)


def test_text_held_for_a_stop_string_comes_with_the_end() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"so DEF", EOS)})), [1], stop=("DEFG",))
    assert text(answer) == "so DEF"
    answer = ask(make(ToyRunner(script={"r": script(b"so DEF")})), [1], stop=("DEFG",), max_tokens=6)
    assert (text(answer), answer[-1].finish_reason) == ("so DEF", "length")


def test_a_stop_string_complete_at_the_last_token_is_a_stop() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"so.")})), [1], stop=(".",), max_tokens=3)
    assert (text(answer), answer[-1].finish_reason) == ("so", "stop")


def test_characters_come_whole_and_one_that_the_end_cuts_off_never_does() -> None:
    smile = "🙂".encode()
    answer = ask(make(ToyRunner(script={"r": script(smile, smile, EOS)})), [1])
    assert [delta.text for delta in answer] == ["🙂", "🙂", ""]
    assert [len(delta.token_ids) for delta in answer] == [4, 4, 1]
    answer = ask(make(ToyRunner(script={"r": script(smile, smile)})), [1], max_tokens=6)
    assert (text(answer), answer[-1].finish_reason) == ("🙂", "length")
    check_books(answer, 1)


def test_no_tokens_asked_for_is_a_prompt_run_and_nothing_more() -> None:
    toy = ToyRunner()
    engine = make(toy, max_batch_tokens=30)
    answer = ask(engine, [1] * 40, max_tokens=0)
    assert answer == [Delta(text="", finish_reason="length", num_prompt_tokens=40)]
    assert toy.plans == [[("r", 0, 30)], [("r", 30, 10)]]
    assert ask(engine, [1] * 40, max_tokens=1)[-1].num_cached_tokens == 32, "the prompt is in the cache now"


def test_an_answer_runs_to_the_end_of_the_context() -> None:
    engine = make(ToyRunner(context=50))
    for max_tokens in (None, 40, 1000):
        answer = ask(engine, [1] * 30, max_tokens=max_tokens, ignore_eos=True)
        assert (answer[-1].finish_reason, answer[-1].num_generated_tokens) == ("length", 20)
