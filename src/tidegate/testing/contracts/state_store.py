"""The laws of `StateStore`: what is missing, and what cannot be read, is never taken for a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from uuid import uuid4

import pytest

from tidegate.core.model.errors import StateUnavailable
from tidegate.core.state.ports import StateStore

ODD_NAMES = (
    *("with space", "it's", 'say "so"', "100%", "%41", "a_b", "back\\slash", "tilde~", "pipe|d", "*", "[a]"),
    *("what?", "hash#1", "a&b=c+d", "a/b", "semi;colon", "ä-日本-😀"),
)
"""Parts of keys that mean something to SQL, to URLs or to shells."""
TEXTS = {
    "empty": "",
    "blank": " \t padded \n",
    "lines": "one\ntwo\r\nthree\n",
    "quotes": """it's "so" `or` \\'so\\'""",
    "wildcards": "100% a_b * ? [x] {{ y }} {z} %(s)s $HOME",
    "unicode": "ä ß Ω 日本 😀 e\u0301 \u2028 \ufeff",
    "markup": "<b>&amp;</b>; DROP TABLE variable; --",
    "packed": 'tidegate 2 {"a":1} H4sIAAAAAAAC',
    "long": "tidegate " + "0123456789abcdef" * 62_500,  # 1 MB: `tidegate.core.state.ledger.MOST_BYTES`
}
JSON_TEXTS = ('{"b":1,"a":[1.0,true,null]}', '{ "a" : "\\u00e4" }', "[]", "0", "null", "true", '"text"', "1.50")
MANY = 1005
"""More keys than one page of any store: Airflow's REST API answers with 100 at a time, a task's listing with 1,000."""

Fill = Callable[[Iterable[str]], None]


class StateStoreContract:
    """Laws of a `StateStore`.

    Fixtures of the subclass:
        store: the store under test; keys of others may be in it.
        another: a second store on the same data, as another process has it.
        unreachable: a store whose backend does not answer.

    Override `fill` where writing a thousand keys one by one takes long, and `read_json` where JSON is written anew.
    """

    @pytest.fixture
    def prefix(self) -> str:
        """The beginning of the keys of one test; every key has the form `tidegate.<pipeline>.<rest>`."""
        return f"tidegate.p{uuid4().hex}."

    @pytest.fixture
    def fill(self, store: StateStore) -> Fill:
        """Writes the value `v` to many keys."""

        def put_each(keys: Iterable[str]) -> None:
            for key in keys:
                store.put(key, "v", "")

        return put_each

    @pytest.fixture
    def read_json(self) -> Callable[[str], str]:
        """The text that `get` gives for a value that is JSON: the same text, unless the store writes JSON anew."""
        return str

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    def test_a_value_is_read_back_as_it_was_written(self, store: StateStore, prefix: str, text: str) -> None:
        """Every character of it, before and after a listing."""
        store.put(f"{prefix}cursor", text, "a description")
        assert store.get(f"{prefix}cursor") == text
        assert store.keys(prefix) == [f"{prefix}cursor"]
        assert store.get(f"{prefix}cursor") == text

    @pytest.mark.parametrize("text", JSON_TEXTS)
    def test_a_value_that_is_json_is_a_text_like_others(
        self, store: StateStore, prefix: str, text: str, read_json: Callable[[str], str]
    ) -> None:
        """It is never decoded; where a store writes JSON anew, it is equal JSON."""
        store.put(f"{prefix}cursor", text, "")
        assert store.get(f"{prefix}cursor") == read_json(text)
        assert json.loads(read_json(text)) == json.loads(text)

    def test_keys_may_hold_any_printable_character(self, store: StateStore, prefix: str) -> None:
        """None of them is another key."""
        keys = [f"{prefix}{name}" for name in ODD_NAMES]
        for key in keys:
            store.put(key, f"the value of {key}", "")
        assert store.keys(prefix) == sorted(keys)
        assert {key: store.get(key) for key in keys} == {key: f"the value of {key}" for key in keys}

    def test_the_letters_of_keys_compare_exactly(self, store: StateStore, prefix: str) -> None:
        """Keys that differ in case are two, each with its own value."""
        store.put(f"{prefix}range.a", "lower", "")
        store.put(f"{prefix}range.A", "upper", "")
        assert store.keys(prefix) == [f"{prefix}range.A", f"{prefix}range.a"]
        assert store.keys(f"{prefix}range.a") == [f"{prefix}range.a"]
        assert store.keys(prefix.upper()) == []
        assert (store.get(f"{prefix}range.a"), store.get(f"{prefix}range.A")) == ("lower", "upper")

    @pytest.mark.parametrize(
        ("names", "asked", "listed"),
        [
            (("a", "a.b", "ab", "b"), "a", ("a", "a.b", "ab")),
            (("a", "a.b", "ab", "b"), "a.", ("a.b",)),
            (("a_b", "a_", "aXb", "a%b"), "a_", ("a_", "a_b")),
            (("a%b", "a%", "aXb", "aXXb"), "a%", ("a%", "a%b")),
            (("a\\b", "a\\", "ab", "a\\\\"), "a\\", ("a\\", "a\\\\", "a\\b")),
            (("*", "a", "ab"), "*", ("*",)),
            (("a|b", "a", "b"), "a|", ("a|b",)),
            (("z.1", "z", "zz.1", "{.1"), "z.", ("z.1",)),
            (("a", "b"), "c", ()),
        ],
    )
    def test_a_prefix_is_compared_letter_by_letter(
        self, store: StateStore, prefix: str, names: tuple[str, ...], asked: str, listed: tuple[str, ...]
    ) -> None:
        """No character of it is a wildcard, and a key is its own prefix."""
        for name in names:
            store.put(f"{prefix}{name}", "v", "")
        assert store.keys(f"{prefix}{asked}") == sorted(f"{prefix}{name}" for name in listed)

    def test_a_listing_is_complete_and_in_order(self, store: StateStore, prefix: str, fill: Fill) -> None:
        """Sorted by code point, with more keys than any page holds, each once."""
        keys = [f"{prefix}range.{number:010d}.run-{number % 7}" for number in range(MANY)]
        fill(keys[::-1])
        store.put(f"{prefix}cursor", "v", "")
        assert store.keys(prefix) == [f"{prefix}cursor", *keys]
        assert store.keys(f"{prefix}range.00000010") == keys[1000:]

    def test_a_key_that_is_missing_cannot_be_read(self, store: StateStore, prefix: str) -> None:
        """Neither an empty value nor a default: a schedule would begin anew. Its neighbours change nothing."""
        for name in ("range.a", "cursor.b"):
            store.put(f"{prefix}{name}", "v", "")
        for missing in ("cursor", "range.A", "range.", "range.ab", "range._"):
            with pytest.raises(StateUnavailable):
                store.get(f"{prefix}{missing}")
        assert store.keys(f"{prefix}cursor.c") == []

    def test_the_last_value_counts(self, store: StateStore, prefix: str) -> None:
        """Also one that is shorter, or empty; the key stays one."""
        for text in ("first, a longer text", "second", "", "last"):
            store.put(f"{prefix}cursor", text, text)
            assert store.get(f"{prefix}cursor") == text
        assert store.keys(prefix) == [f"{prefix}cursor"]

    @pytest.mark.parametrize("description", ["", 'it\'s 100% "so"\nä 😀', "x" * 500])
    def test_a_description_changes_nothing_of_the_value(self, store: StateStore, prefix: str, description: str) -> None:
        """It is for people who look at the store."""
        store.put(f"{prefix}cursor", "v", description)
        assert store.get(f"{prefix}cursor") == "v"

    def test_a_deleted_key_is_gone_and_no_other(self, store: StateStore, prefix: str) -> None:
        """It may be written again. To delete what is not there is no error: a clean-up that was cut short is done over."""
        keys = [f"{prefix}range.{name}" for name in ("a", "A", "a.b", "_", "100%")]
        for key in keys:
            store.put(key, "v", "")
        for key in (f"{prefix}range.a", f"{prefix}range._"):
            store.delete(key)
            assert key not in store.keys(prefix)
            with pytest.raises(StateUnavailable):
                store.get(key)
            store.delete(key)
        assert store.keys(prefix) == sorted(f"{prefix}range.{name}" for name in ("A", "a.b", "100%"))
        store.put(f"{prefix}range.a", "anew", "")
        assert store.get(f"{prefix}range.a") == "anew"

    def test_a_listing_shows_what_others_wrote_and_deleted(self, store: StateStore, another: StateStore, prefix: str) -> None:
        """A value that is read after a listing is at least as new as the listing."""
        store.put(f"{prefix}cursor", "first", "")
        store.put(f"{prefix}range.a", "v", "")
        assert another.keys(prefix) == [f"{prefix}cursor", f"{prefix}range.a"]
        assert another.get(f"{prefix}cursor") == "first"
        store.put(f"{prefix}cursor", "second", "")
        store.delete(f"{prefix}range.a")
        assert another.keys(prefix) == [f"{prefix}cursor"]
        assert another.get(f"{prefix}cursor") == "second"
        with pytest.raises(StateUnavailable):
            another.get(f"{prefix}range.a")

    @pytest.mark.parametrize(
        "call",
        [
            lambda store, key: store.keys(key),
            lambda store, key: store.get(key),
            lambda store, key: store.put(key, "v", "d"),
            lambda store, key: store.delete(key),
        ],
        ids=["keys", "get", "put", "delete"],
    )
    def test_a_store_that_does_not_answer_is_unavailable(
        self, unreachable: StateStore, prefix: str, call: Callable[[StateStore, str], object]
    ) -> None:
        """Whatever is asked of it; the question can be asked again."""
        with pytest.raises(StateUnavailable) as refused:
            call(unreachable, f"{prefix}cursor")
        assert refused.value.retryable
