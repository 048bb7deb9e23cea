"""Text fits its width: words stay whole, tables keep every entry, pipes are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.report.layout import described, output_width, table_text, wrapped

HEAD = ("model", "policy", "seed", "accuracy", "gain in points [95 %]", "learnable %", "tokens")
BODY = [
    ("tiny", "hard", "0", "0.386 → 0.665", "+27.9 [+23.0, +32.8]", "78.0", "148,949"),
    ("tiny", "easy", "0", "0.386 → 0.715", "+32.9 [+28.2, +37.5]", "15.8", "110,371"),
]
WORDS = st.lists(st.text("abc,.", min_size=1, max_size=12), max_size=12).map(" ".join)


def test_a_table_is_narrowed_in_steps() -> None:
    assert table_text(HEAD, BODY, 200) == table_text(HEAD, BODY)
    assert table_text(HEAD, BODY).split("\n")[2:] == [
        "tiny   hard    0     0.386 → 0.665  +27.9 [+23.0, +32.8]   78.0         148,949",
        "tiny   easy    0     0.386 → 0.715  +32.9 [+28.2, +37.5]   15.8         110,371",
    ]
    assert table_text(HEAD, BODY, 78).split("\n") == [
        "                                    gain in points",
        "model  policy  seed  accuracy       [95 %]                learnable %  tokens",
        "─────  ──────  ────  ─────────────  ────────────────────  ───────────  ───────",
        "tiny   hard    0     0.386 → 0.665  +27.9 [+23.0, +32.8]  78.0         148,949",
        "tiny   easy    0     0.386 → 0.715  +32.9 [+28.2, +37.5]  15.8         110,371",
    ]
    assert table_text(HEAD, BODY, 44).split("\n") == [
        "model: tiny, seed: 0",
        "",
        "                       gain in points",
        "policy  accuracy       [95 %]",
        "──────  ─────────────  ────────────────────",
        "hard    0.386 → 0.665  +27.9 [+23.0, +32.8]",
        "easy    0.386 → 0.715  +32.9 [+28.2, +37.5]",
        "",
        "policy  learnable %  tokens",
        "──────  ───────────  ───────",
        "hard    78.0         148,949",
        "easy    15.8         110,371",
    ]


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.lists(
            st.lists(WORDS, min_size=count, max_size=count), min_size=2, max_size=6
        )
    ),
    st.integers(60, 120),
)
def test_a_narrow_table_keeps_every_word_and_fits(rows: list[list[str]], width: int) -> None:
    text = table_text(rows[0], rows[1:], width)
    for word in {word for row in rows for entry in row for word in entry.split()}:
        assert word in text
    unbroken = 14 * len(rows[0])  # several long words beside each other may be wider
    assert max(map(len, text.split("\n"))) <= max(width, unbroken)


@given(st.lists(WORDS, max_size=4), st.integers(20, 100), st.integers(0, 12))
def test_wrapped_lines_fit_and_keep_their_words(lines: list[str], width: int, indent: int) -> None:
    text = wrapped("\n".join(lines), width, indent)
    assert text.split() == " ".join(lines).split()
    assert all(len(line) <= max(width, width // 2 + 12) for line in text.split("\n"))


def test_a_long_path_stays_whole_and_unlimited_text_stays_as_it_is() -> None:
    path = "/a-long/path-with/hyphens" * 5
    assert wrapped(f"page: {path}", 40) == f"page:\n  {path}"
    assert wrapped("word " * 100, None) == "word " * 100


WIDE = st.sampled_from(["数学题", "tiny", "naïve", "nai\u0308ve", "🚀", "−3.2 %", "문제 하나", ""])


@pytest.mark.parametrize("width", [None, 60, 30])
@given(
    st.integers(1, 6).flatmap(
        lambda count: st.lists(st.lists(WIDE, min_size=count, max_size=count), min_size=2)
    )
)
def test_a_rule_ends_with_the_last_column_whatever_the_characters(
    width: int | None, rows: list[list[str]]
) -> None:
    for table in table_text(rows[0], rows[1:], width).split("\n\n"):
        lines = table.split("\n")
        rules = [line for line in lines if line and set(line) == {"─", " "} or set(line) == {"─"}]
        assert all(cell_len(line) <= cell_len(rule) for rule in rules for line in lines)


def test_columns_of_wide_characters_stay_aligned() -> None:
    assert table_text(("data", "policy"), [("数学题", "hard"), ("gsm8k", "easy")]).split("\n") == [
        "data    policy",
        "──────  ──────",
        "数学题  hard",
        "gsm8k   easy",
    ]
    assert wrapped("数学题 数学题 数学题", 13) == "数学题 数学题\n  数学题"
    assert described(["题", "ab"], ["one", "two"], 20) == "题  one\nab  two"


def test_descriptions_start_in_one_column() -> None:
    assert described(["a", "long"], ["one two three four", ""], 20) == (
        "a     one two three\n      four\nlong"
    )


def test_pipes_have_no_width_unless_columns_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output_width() is None  # pytest captures stdout
    for columns, width in (("72", 72), ("3", 20), ("0", None), ("wide", None), ("-5", None)):
        monkeypatch.setenv("COLUMNS", columns)
        assert output_width() == width
