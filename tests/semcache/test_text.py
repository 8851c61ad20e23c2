import pytest

from semcache.text import Text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,234.5 and 7", ["1234.5", "7"]),
        ("take .5 ml, not -.5", ["0.5", "-0.5"]),
        ("twenty-five times 4", ["25", "4"]),
        ("four times twenty five", ["4", "25"]),
        ("twenty people and ten dogs", ["20", "10"]),
        ("the third of 10", ["3", "10"]),
        ("which one is best", []),
        ("1 hour", []),
        ("one thousand", ["1000"]),
        ("1 to 3 hours", ["1", "3"]),
        ("sed 1 file", ["1"]),
    ],
)
def test_numbers_in_the_order_of_the_text(text: str, numbers: list[str]) -> None:
    assert Text(text).numbers == numbers


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("what does -D do", {"-D"}),
        (r"is \d like \D", {r"\d", r"\D"}),
        ("open /home/Data/file.txt", {"/home/Data/file.txt"}),
        ("is GPT-4o older than ord-48213", {"gpt-4o", "ord-48213"}),
        ("C# or `Foo`", {"c#", "Foo"}),
        ("no code here, is there?", set()),
    ],
)
def test_identifiers_keep_their_case_where_it_means_something(text: str, identifiers: set[str]) -> None:
    assert Text(text).identifiers == identifiers


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("Is it so? (Yes: “it is” – I'd say, well-known/true...)", []),
        ("$5 is 20% of 25 €, at 30°C", []),
        ("5 - 3 + 2 * 4", ["-", "+", "*"]),
        ("from 5-10 items", []),
        ("x_1 ^ 2 = 4", ["^", "="]),
        ("120 / 4", ["/"]),
        ("5! is 120! Really!", ["!"]),
        ("the % operator", ["%"]),
        ("❤\ufe0f and ❤", ["❤", "❤"]),
        ("🇫🇷", ["🇫", "🇷"]),
        ("東京の天気は、どうですか。", []),
    ],
)
def test_symbols_are_what_is_neither_word_nor_punctuation(text: str, symbols: list[str]) -> None:
    assert Text(text).symbols == symbols


def test_a_lone_capital_is_a_name_unless_it_begins_a_sentence_or_is_i() -> None:
    assert Text("Is vitamin A good? A lot, I hear.").names == {"a"}
