from __future__ import annotations

from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.training.demo_data import Pair, collect_pairs, installed_sources

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
        Pair("Compute something four times over and over again.", code)
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


def test_the_installed_sources_are_there() -> None:
    folders = installed_sources()
    assert [folder.name for folder in folders[1:]] == ["numpy", "scipy", "sklearn"]
    assert all((folder / "__init__.py").is_file() for folder in folders[1:])
    assert (folders[0] / "ast.py").is_file()


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(CimError, match='"no_such_package" is not installed'):
        installed_sources(["no_such_package"])
