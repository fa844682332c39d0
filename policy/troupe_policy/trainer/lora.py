"""Low-rank adapters (peft) in a model: added in place, published merged and, beside that, as peft's own files.

In: a causal LM and LoraOptions. Out: the model with its weights frozen and adapters that are trained.
Invariants: the frozen weights never change, so a checkpoint needs only the adapters to go on, and so does a server that has the
model already; for all others what is published is W + (alpha / rank)·B·A under the model's own names.
Source: 2106.09685.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor, nn

from .options import LoraOptions, TrainerError

ADAPTER = "default"
# peft saves the model that it wraps below these
PEFT_PREFIX = "base_model.model."
# Linear layers are named in the message up to this many.
SHOWN = 12


def add_adapters(model: nn.Module, options: LoraOptions) -> None:
    """Freezes `model` and adds adapters. Raises TrainerError trainer.no_lora_target, trainer.no_peft."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise TrainerError("trainer.no_peft", f"train.lora needs the Python package peft: {error}") from error
    targets = linear_names(model) if options.targets == ("all-linear",) else list(options.targets)
    model.requires_grad_(False)
    unknown = [target for target in targets if not _matches(model, target)]
    if unknown:
        raise TrainerError(
            "trainer.no_lora_target",
            f"train.lora.targets: {', '.join(unknown)} matches no linear layer of {type(model).__name__}; "
            f"there are {', '.join(linear_names(model)[:SHOWN])}",
        )
    head = model.get_output_embeddings()  # type: ignore[operator]
    turned = any(type(module).__name__ == "Conv1D" for module in model.modules())
    config = LoraConfig(
        task_type="CAUSAL_LM", r=options.rank, lora_alpha=options.alpha, target_modules=targets, lora_dropout=0.0, bias="none",
        fan_in_fan_out=turned,
    )  # fmt: skip
    inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    if model.get_output_embeddings() is not head:  # type: ignore[operator]
        raise TrainerError(
            "trainer.no_lora_target",
            "train.lora.targets names the language-model head, which has no adapter here: leave it out",
        )
    # peft leaves what it wraps in training mode
    model.eval()


def linear_names(model: nn.Module) -> list[str]:
    """Last parts of the paths of the model's linear layers, the head apart, sorted."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    named = {name.rpartition(".")[2] for name, module in model.named_modules() if _is_linear(module) and module is not head}
    return sorted(named)


def config_json(model: nn.Module, base: str) -> bytes:
    """What peft calls adapter_config.json. model: with its adapters. base: the directory of the one without them."""
    config = {**model.peft_config[ADAPTER].to_dict(), "base_model_name_or_path": base, "inference_mode": True}  # type: ignore[index]
    # sets, in an order of their own, are the same bytes every time
    return (json.dumps(config, default=sorted, indent=2) + "\n").encode()


def peft_name(name: str) -> str:
    """Of an adapter's parameter in peft's files."""
    return PEFT_PREFIX + name.replace(f".{ADAPTER}.", ".")


def own_name(name: str) -> str:
    """Of an adapter's parameter in the model, from its name in peft's files, or in ours before they were peft's."""
    if not name.startswith(PEFT_PREFIX):
        return name
    return name.removeprefix(PEFT_PREFIX).removesuffix("weight") + f"{ADAPTER}.weight"


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is an adapter's."""
    return ".lora_A." in name or ".lora_B." in name


def merged(model: nn.Module, options: LoraOptions, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The model's weights under its own names, with the adapters added. given: all of its tensors, whole, by name."""
    scale = options.alpha / options.rank
    weights: dict[str, Tensor] = {}
    for name, value in given.items():
        if is_adapter(name):
            continue
        path, base, leaf = name.rpartition(".base_layer.")
        weights[f"{path}.{leaf}" if base else name] = value
        if base and leaf == "weight":
            down, up = given[f"{path}.lora_A.{ADAPTER}.weight"], given[f"{path}.lora_B.{ADAPTER}.weight"]
            update = (up.float() @ down.float()) * scale
            # GPT-2's linear layers are stored the other way round
            turned = type(model.get_submodule(path).base_layer).__name__ == "Conv1D"
            weights[f"{path}.weight"] = value + (update.T if turned else update).to(value.dtype)
    return weights


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _matches(model: nn.Module, target: str) -> bool:
    paths = (name for name, module in model.named_modules() if _is_linear(module))
    return any(path == target or path.endswith(f".{target}") for path in paths)
