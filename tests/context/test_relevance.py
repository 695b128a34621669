"""Which files matter for a task in words, and the short map of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.context.outline import MOST_BYTES, definitions, repository_map
from holdfast.context.relevance import Document, ranked, terms

FILES = (
    Document("src/shop/discount.py", "def discount_for(customer):\n    return 0\n"),
    Document("src/shop/invoice.py", "class Invoice:\n    total = 0\n"),
    Document("src/shop/greeting.py", "def greet(name):\n    return name\n"),
    Document("tests/test_discount.py", "from shop.discount import discount_for\ndef test_discount_for(): ...\n"),
)


def test_names_count_as_a_whole_and_in_their_parts() -> None:
    """So that words of a task meet names in every spelling."""
    assert terms("parseDate parse_date HTTPServer2") == [
        *("parsedate", "parse", "date"),
        *("parse_date", "parse", "date"),
        *("httpserver2", "http", "server"),
    ]


def test_the_file_that_the_words_are_about_is_first() -> None:
    """By what it says and what it is called; tests of it come last, and what shares no word is left out."""
    assert ranked("The discount for a customer is wrong", FILES) == ("src/shop/discount.py", "tests/test_discount.py")


def test_source_stands_before_tests_and_words() -> None:
    """However often a manual says it."""
    manual = Document("docs/discount.md", "discount " * 500)
    assert ranked("The discount for a customer is wrong", (manual, *FILES)) == (
        "src/shop/discount.py",
        "tests/test_discount.py",
        "docs/discount.md",
    )


@given(st.permutations(FILES))
def test_the_order_in_which_files_come_does_not_matter(files: list[Document]) -> None:
    """The same words and files give the same order."""
    assert ranked("invoice: total and discount", files) == ranked("invoice: total and discount", FILES)


def test_no_files_and_no_words_give_nothing() -> None:
    """Neither is an error."""
    assert ranked("anything", ()) == ()
    assert ranked("", FILES) == ()


def test_definitions_are_told_without_their_bodies() -> None:
    """In several languages; what only uses a name is no definition."""
    text = (
        "class A(B):\n    async def go(self):\n        pass\nx = go()\nexport function run(a) {\npub fn f() -> u8 {\n"
    )
    text += "func (s *S) Do() {\n"
    assert definitions(text) == [
        "class A(B)",
        "    async def go(self)",
        "export function run(a)",
        "pub fn f() -> u8",
        "func (s *S) Do()",
    ]


def test_a_map_has_what_matters_first_and_then_other_names() -> None:
    """The files found with their definitions; others by name, the nearest to the top first."""
    texts = {document.path: document.text for document in FILES}
    told = repository_map(["src/shop/discount.py"], texts, ["a/b/c.py", "README.md", "src/shop/discount.py"])
    assert told == "src/shop/discount.py\n    def discount_for(customer)\nREADME.md\na/b/c.py"


@given(st.lists(st.text("ab/é", min_size=1, max_size=300), max_size=400), st.integers(0, 400))
def test_a_map_is_bounded(paths: list[str], number: int) -> None:
    """Whatever the repository holds."""
    texts = dict.fromkeys(paths, "def " + "x" * 500 + "():\n" + "def y(): ...\n" * 50)
    assert len(repository_map(paths[:number], texts, paths).encode()) <= MOST_BYTES + 100


def test_control_characters_of_a_repository_are_not_passed_on() -> None:
    """Neither of a name nor of a line."""
    told = repository_map(["a\x1b[2J.py"], {"a\x1b[2J.py": "def f():\x1b[31m pass\n"}, ())
    assert "\x1b" not in told
