"""The check of a reward's file: what it accepts as defined, and what it says of a function that does not fit its call."""

import sys

import pytest

from troupe_policy.functions.in_file import fault_of


def check(tmp_path, source: str, function: str = "reward") -> dict[str, object]:
    file = tmp_path / "judge.py"
    file.write_text(source)
    path = list(sys.path)
    try:
        return fault_of(str(file), function, 2)
    finally:
        sys.path[:] = path


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    from not_installed import reward\nexcept ImportError:\n    def reward(answer, task): return 1.0\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    from math import gcd as reward\n",
        "match 1:\n    case _:\n        def reward(answer, task): return 1.0\n",
        "if True:\n    reward = lambda answer, task: 1.0\n",
        "from json import *\n",
    ],
    ids=["def in except", "import in except", "def in match", "assigned in if", "star import"],
)
def test_a_function_that_a_block_of_the_top_level_binds_is_found(tmp_path, source) -> None:
    assert check(tmp_path, source) == {}


def test_a_name_that_only_a_function_binds_is_not_a_function_of_the_file(tmp_path) -> None:
    fault = check(tmp_path, "if True:\n    def score(answer, task):\n        reward = 1.0\n        return reward\n")
    assert fault == {"fault": "has no function 'reward'; its functions: none"}


def test_a_keyword_only_parameter_without_a_default_is_named(tmp_path) -> None:
    assert check(tmp_path, "\ndef reward(answer, task, *, tolerance): return 1.0\n") == {
        "fault": "reward(answer, task, *, tolerance) has keyword-only 'tolerance' without a default; "
        "the call passes only answer and task, by position",
        "line": 2,
    }


@pytest.mark.parametrize("parameters", ["answer", "answer, task, more", ""])
def test_a_wrong_number_of_positional_parameters_is_told_with_the_signature(tmp_path, parameters) -> None:
    assert check(tmp_path, f"def reward({parameters}): return 1.0\n") == {
        "fault": f"reward({parameters}) cannot be called with 2 positional arguments (answer, task)",
        "line": 1,
    }


@pytest.mark.parametrize("parameters", ["answer, task", "answer, task=None", "*all", "answer, task, *, tolerance=0.1", "a, b, **more"])
def test_a_function_that_takes_two_positional_arguments_fits(tmp_path, parameters) -> None:
    assert check(tmp_path, f"def reward({parameters}): return 1.0\n") == {}
