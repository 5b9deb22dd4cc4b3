from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.demo import data as demo_data
from cimtool.demo import sources as demo_sources
from cimtool.demo.data import (
    DemoFiles,
    DemoSettings,
    collect_pairs,
    document_rows,
    grams_of,
    installed_sources,
    words_of,
    write_embeddings,
    write_pretrained,
)
from cimtool.demo.queries import read_right
from cimtool.demo.sources import DocumentedFunction
from cimtool.loading.digests import row_digests

VERBS = ("parse", "sort", "merge", "open", "close", "count", "hash", "split", "join", "scale")
NOUNS = ("matrix", "socket", "buffer", "thread", "vector", "kernel", "header", "window")
PAIRS = [
    DocumentedFunction(f"{verb} every {noun}", f"for {noun} in {noun}s: {verb}({noun})")
    for verb in VERBS
    for noun in NOUNS
]
SMALL = DemoSettings(epochs=1, eval_rows=10, few_rows=4, calibration_rows=20, width=8)


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as held:
        return dict(held)


def test_the_files_hold_rows_of_both_sides(tmp_path: Path) -> None:
    files = DemoFiles.under(tmp_path)
    assert write_embeddings(PAIRS, files, SMALL) == 70
    sizes = {files.train: 70, files.calibration: 20, files.eval: 10, files.few: 4}
    for path, rows in sizes.items():
        found = arrays(path)
        assert {key: found[key].shape for key in found} == {"text": (rows, 8), "video": (rows, 8)}
        assert {found[key].dtype for key in found} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(
        arrays(files.calibration)["text"], arrays(files.train)["text"][:20]
    )


def test_no_row_that_evaluates_is_trained_on(tmp_path: Path) -> None:
    """Functions that differ in punctuation alone are two pairs with the same rows."""
    twins = [DocumentedFunction(f"{pair.text}!", f"{pair.code};") for pair in PAIRS]
    files = DemoFiles.under(tmp_path)
    count = write_embeddings([*PAIRS, *twins], files, replace(SMALL, calibration_rows=999))
    assert 140 <= count < 150
    for path in (files.train, files.calibration):
        found, held = arrays(path), arrays(files.eval)
        assert len(found["text"]) == len(found["video"]) == count
        for name in ("text", "video"):
            assert not np.isin(row_digests(found[name]), row_digests(held[name])).any()


def test_too_few_functions(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="80 pairs; expected more than 80"):
        write_embeddings(PAIRS, DemoFiles.under(tmp_path), replace(SMALL, eval_rows=80))


def test_no_judged_row_that_evaluates_is_trained_on(tmp_path: Path) -> None:
    def encode(texts: Sequence[str], most: int) -> np.ndarray:
        """Rows of one text and its twin that differ a little."""
        bare = [text.strip("!;") for text in texts]
        drawn = [np.random.default_rng([*text.encode()]).normal(size=9) for text in bare]
        drawn += 1e-3 * np.random.default_rng(len(texts)).normal(size=(len(texts), 9))
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    twins = [DocumentedFunction(f"{pair.text}!", f"{pair.code};") for pair in PAIRS]
    files = DemoFiles.under(tmp_path)
    settings = replace(SMALL, pretrained=True, functions=150)
    count = write_pretrained([*PAIRS, *twins], files, settings, encode)
    found, held = arrays(files.train), arrays(files.eval)
    assert len(found["text"]) == count
    assert len(held["video"]) == 10
    assert 130 <= len(found["video"]) < 140
    for name in ("text", "video"):
        assert (found[name] @ held[name].T).max() < 0.999
    assert len(arrays(files.few)["video"]) == 4
    calibration = arrays(files.calibration)
    assert len(calibration["text"]) == len(calibration["video"]) == 20
    np.testing.assert_array_equal(calibration["text"], found["text"][:20])
    for file in (files.train, files.eval, files.few):
        texts, videos = len(arrays(file)["text"]), len(arrays(file)["video"])
        right = read_right(file, texts, videos)
        assert right[np.arange(texts), arrays(file)["text_to_video"]].all()


BODY = "\n".join(f"    value_{i} = compute_something(argument, {i})" for i in range(4))
FUNCTION = f'''
def named(argument, other=1):
    """
    Compute   something four times
    over and over again.

    A second paragraph.
    """
    # a comment that is kept
{BODY}
'''


def write(folder: Path, name: str, source: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def test_a_pair_is_the_first_paragraph_and_the_code_without_it(tmp_path: Path) -> None:
    write(tmp_path, "a.py", FUNCTION)
    code = f"argument, other=1\n    # a comment that is kept\n{BODY}"
    assert collect_pairs([tmp_path]) == [
        DocumentedFunction("Compute something four times over and over again.", code)
    ]


def test_methods_and_inner_functions_count(tmp_path: Path) -> None:
    inner = FUNCTION.replace("\n", "\n    ").replace("four", "five")
    write(tmp_path, "a.py", f"class A:\n    if True:\n{inner.replace(chr(10), chr(10) + '    ')}\n")
    write(tmp_path, "b.py", f"def outer():\n{inner.replace('five', 'nine')}\n")
    texts = [pair.text.split()[2] for pair in collect_pairs([tmp_path])]
    assert texts == ["five", "nine"]


@pytest.mark.parametrize(
    "source",
    [
        FUNCTION.replace("Compute   something four times\n    over and over again.", "Too short."),
        FUNCTION.replace("four times", "times " * 80),
        f'def f():\n    """{"A docstring and nothing else. " * 4}"""\n',
        'def f():\n    """A docstring that is long enough."""\n    return NotImplemented\n',
        "def broken(:\n",
    ],
)
def test_what_says_too_little_or_too_much_is_left_out(tmp_path: Path, source: str) -> None:
    write(tmp_path, "a.py", source)
    assert collect_pairs([tmp_path]) == []


def test_files_that_are_not_text_and_tests_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "tests/a.py", FUNCTION)
    write(tmp_path, "sub/test/b.py", FUNCTION)
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'\n" + FUNCTION.encode())
    assert collect_pairs([tmp_path]) == []


def test_no_text_and_no_code_twice_whatever_the_place_and_order(tmp_path: Path) -> None:
    first, second = tmp_path / "tests" / "first", tmp_path / "second"
    write(first, "a.py", FUNCTION)
    write(second, "z.py", FUNCTION.replace("value_3", "value_9"))  # the same text
    write(second, "b.py", FUNCTION.replace("four", "zero"))  # the same code
    write(second, "c.py", FUNCTION.replace("four", "six").replace("value_0", "other_0"))
    pairs = collect_pairs([first, second])
    assert pairs == collect_pairs([second, first]) == sorted(pairs)
    assert [pair.text.split()[2] for pair in pairs] == ["four", "six"]


def test_several_processes_read_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_sources, "FEWEST_FILES", 1)
    for number, word in enumerate(("four", "five", "nine")):
        write(tmp_path, f"{number}.py", FUNCTION.replace("four", word))
    files = sorted(tmp_path.iterdir())
    found = demo_sources.documented_functions(files, 3)
    assert found == demo_sources.documented_functions(files)
    assert len(found) == 3


def test_the_installed_sources_are_there() -> None:
    folders = installed_sources()
    assert [folder.name for folder in folders[1:]] == ["numpy", "scipy", "sklearn"]
    assert all((folder / "__init__.py").is_file() for folder in folders[1:])
    assert (folders[0] / "ast.py").is_file()


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(CimError, match='"no_such_package" is not installed'):
        installed_sources(["no_such_package"])


WORDS = ("matrix", "vector", "parse", "socket", "median", "sorted", "thread", "buffer", "kernel")
DOCUMENTS = [f"{a} {b} of {a}{b.title()}" for a in WORDS for b in WORDS]


def test_identifiers_are_split_and_grams_mark_the_ends_of_words() -> None:
    assert list(words_of("doIt")) == ["do", "it"]
    assert grams_of("do") == ("do", "<do", "do>", "<do>")
    words = set(words_of("snake_case HTTPServer x86"))
    assert words == {"snake", "case", "http", "server", "x", "86"}


def test_counts_are_those_of_every_word_and_gram() -> None:
    documents = ["doIt doIt", "undo"]
    grams = sorted({gram for one in documents for word in words_of(one) for gram in grams_of(word)})
    expected = [
        [sum(grams_of(word).count(gram) for word in words_of(one)) for gram in grams]
        for one in documents
    ]
    np.testing.assert_array_equal(demo_data._gram_counts(documents).toarray(), expected)


def test_rows_have_the_norm_of_the_width_and_are_the_same_each_time() -> None:
    rows = document_rows(DOCUMENTS, 3, 12)
    assert rows.dtype == np.float32
    assert rows.shape == (len(DOCUMENTS), 12)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.sqrt(12), rtol=1e-5)
    np.testing.assert_array_equal(rows, document_rows(DOCUMENTS, 3, 12))


def test_a_document_that_is_fitted_on_has_the_row_of_one_that_is_not() -> None:
    twice = document_rows([DOCUMENTS[5], *DOCUMENTS], 1, 12)
    np.testing.assert_array_equal(twice[0], twice[6])  # or rows that evaluate would train


def test_documents_that_share_words_lie_closer() -> None:
    words = ("matrix median", "matrices medians", "socket parse")
    one, alike, other = document_rows([*words, *DOCUMENTS], 3, 12)[:3]
    assert one @ alike > 2 * abs(one @ other)


def test_a_document_of_unknown_words_gives_zeros() -> None:
    assert not document_rows(["qqq", *DOCUMENTS], 1, 12)[0].any()


def test_too_few_documents() -> None:
    with pytest.raises(CimError, match=r"9 documents .* too few for 10 dimensions"):
        document_rows(DOCUMENTS[:9], 0, 10)
