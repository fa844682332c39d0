"""The pinned requirements, read as each supported Python reads them."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

POLICY = Path(__file__).parents[2]
# Their first releases that Python 3.10 cannot install.
NOT_FOR_3_10 = {"numpy": "2.3", "scipy": "1.16", "networkx": "3.5"}


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize("name", ["requirements.txt", "requirements-sandbox.txt", "requirements-without-torch.txt"])
def test_every_supported_python_has_one_pin_of_each_package_that_it_can_install(python, name) -> None:
    lines = [line for line in (POLICY / name).read_text().splitlines() if line and not line.startswith("#")]
    read = [Requirement(line) for line in lines]
    pins = [one for one in read if one.marker is None or one.marker.evaluate({"python_version": python})]
    assert sorted({one.name for one in read}) == sorted(one.name for one in pins)
    for one in pins:
        [pin] = one.specifier
        assert pin.operator == "=="
        if python == "3.10" and one.name in NOT_FOR_3_10:
            assert Version(pin.version) < Version(NOT_FOR_3_10[one.name])
