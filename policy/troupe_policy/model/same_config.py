"""Compares the config of a model with the one that a checkpoint, or published weights, were written with.

In: a model in memory, or a directory. Out: the fields of its config that say how the model computes; the differences
of two such sets of fields. Invariants: the installed transformers has written or read both sides, so a field that it
leaves out, fills in or renames is no difference. Only fields that both sides have are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import AutoConfig

# Fields that say nothing of how the model computes, at any depth: the parts of a composite model have them too.
IGNORED = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache")
MOST_SHOWN = 200


def config_of(directory: str | Path) -> dict:
    """Compared fields of the directory's config.json, by path. A field that the file lacks has the default of the
    file's architecture. Raises OSError, ValueError.
    """
    return _compared(AutoConfig.from_pretrained(str(directory), local_files_only=True).to_dict())


def config_as_saved(model: torch.nn.Module) -> dict:
    """Fields of the config that the model's checkpoints will have. Empty if transformers cannot read its own config back,
    which turns comparisons off.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(model.config.to_json_string(use_diff=True))
        try:
            return config_of(folder)
        except (OSError, ValueError):
            return {}


def differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """Names up to three fields whose values differ in `theirs` and `ours`, with both values, and says how many more
    differ; '' if none does.
    """
    fields = [name for name in sorted({*theirs} & {*ours}) if theirs[name] != ours[name]]
    shown = [f"{name} is {_short(theirs[name])} there and {_short(ours[name])} here" for name in fields[:3]]
    return "; ".join(shown + ([f"and {len(fields) - 3} more"] if fields[3:] else []))


def _compared(fields: Mapping[str, object], below: str = "") -> dict[str, object]:
    """The fields without those in IGNORED, by their paths, such as `text_config.rope_parameters.rope_theta`."""
    found: dict[str, object] = {}
    for name, value in fields.items():
        if name in IGNORED:
            continue
        found |= _compared(value, f"{below}{name}.") if isinstance(value, dict) else {f"{below}{name}": value}
    return found


def _short(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"
