import subprocess
import sys

import pytest

from semcache.errors import CacheError
from semcache.key import digest


def test_the_order_of_an_objects_keys_does_not_count() -> None:
    assert digest({"a": 1, "b": [True, None]}) == digest({"b": [True, None], "a": 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1,), ("1",)),
        ((1,), (1.0,)),
        ((None,), ()),
        (({},), (None,)),
        (([1, 2],), ([2, 1],)),
        ((["a", "b"],), ("a", "b")),
        (({"temperature": 0},), ({"temperature": None},)),
        (("\u00e9",), ("e\u0301",)),
    ],
)
def test_everything_else_counts(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    assert digest(*one) != digest(*other)


def test_the_digest_is_the_same_in_another_process() -> None:
    code = "from semcache.key import digest; print(digest('x', {'b': 1.5, 'a': ['ü']}).hex())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == digest("x", {"a": ["ü"], "b": 1.5}).hex()


def test_what_is_not_json_has_no_digest() -> None:
    with pytest.raises(CacheError, match="not a JSON value"):
        digest(object())
