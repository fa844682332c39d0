"""Low-rank adapters (LoRA, by peft): added to a model in place, published both merged and as peft's own files.

In: a causal LM and LoraOptions. Out: the model with frozen weights and trained adapters; merged weights; peft's
config.
Invariants: the frozen weights never change, so a resumed training, and a server that has the base model, need no
weights but the adapters. For every other reader W + (alpha / rank)·B·A is published under the model's own names (W: a
layer's frozen weight; A, B: its trained adapter).
Source: arXiv 2106.09685.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor, nn

from .options import LoraOptions, TrainerError

ADAPTER = "default"
# Prefix of the parameters' names in peft's files.
PEFT_PREFIX = "base_model.model."
# Upper bound on the number of linear layers that an error lists.
SHOWN = 12


def add_adapters(model: nn.Module, options: LoraOptions) -> None:
    """Freezes `model` and adds adapters. Raises TrainerError trainer.no_lora_target if a target matches no linear layer
    or is the head, and trainer.no_peft if peft cannot be imported.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise TrainerError("trainer.no_peft", f"train.lora needs the Python package peft: {error}; `npx troupe setup` (in a checkout `npm run setup`) installs it") from error
    targets = linear_names(model) if options.targets == ("all-linear",) else list(options.targets)
    model.requires_grad_(False)
    unknown = [target for target in targets if not _matches(model, target)]
    if unknown:
        raise TrainerError(
            "trainer.no_lora_target",
            f"train.lora.targets: {', '.join(unknown)} matches no linear layer of {type(model).__name__}; "
            f"its linear layers include {', '.join(linear_names(model)[:SHOWN])}",
        )
    head = model.get_output_embeddings()  # type: ignore[operator]
    is_transposed = any(type(module).__name__ == "Conv1D" for module in model.modules())
    config = LoraConfig(
        task_type="CAUSAL_LM", r=options.rank, lora_alpha=options.alpha, target_modules=targets, lora_dropout=0.0, bias="none",
        fan_in_fan_out=is_transposed,
    )  # fmt: skip
    inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    if model.get_output_embeddings() is not head:  # type: ignore[operator]
        raise TrainerError(
            "trainer.no_lora_target",
            "train.lora.targets names the language-model head, which cannot have an adapter: remove it from the list",
        )
    # Evaluation mode is set again, because peft leaves the modules that it wraps in training mode.
    model.eval()


def linear_names(model: nn.Module) -> list[str]:
    """Names of the model's linear layers without the head (last parts of their paths), sorted, each once."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    named = {name.rpartition(".")[2] for name, module in model.named_modules() if _is_linear(module) and module is not head}
    return sorted(named)


def config_json(model: nn.Module, base: str) -> bytes:
    """Content of peft's adapter_config.json. model: the model with adapters. base: directory of the model without them.
    """
    config = {**model.peft_config[ADAPTER].to_dict(), "base_model_name_or_path": base, "inference_mode": True}  # type: ignore[index]
    # The config holds sets; they are sorted, so that the bytes are the same every time.
    return (json.dumps(config, default=sorted, indent=2) + "\n").encode()


def peft_name(name: str) -> str:
    """Name of an adapter's parameter in peft's files."""
    return PEFT_PREFIX + name.replace(f".{ADAPTER}.", ".")


def own_name(name: str) -> str:
    """Name of an adapter's parameter in the model, from its name in peft's files or in our earlier format."""
    if not name.startswith(PEFT_PREFIX):
        return name
    return name.removeprefix(PEFT_PREFIX).removesuffix("weight") + f"{ADAPTER}.weight"


def is_adapter(name: str) -> bool:
    """True for the name of an adapter's parameter."""
    return ".lora_A." in name or ".lora_B." in name


def merged(model: nn.Module, options: LoraOptions, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Merges the adapters into the model's weights, under the model's own names. given: all of the model's tensors by
    name, each whole (not a rank's shard).
    """
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
            # GPT-2's linear layers store their weight transposed.
            is_transposed = type(model.get_submodule(path).base_layer).__name__ == "Conv1D"
            weights[f"{path}.weight"] = value + (update.T if is_transposed else update).to(value.dtype)
    return weights


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _matches(model: nn.Module, target: str) -> bool:
    paths = (name for name, module in model.named_modules() if _is_linear(module))
    return any(path == target or path.endswith(f".{target}") for path in paths)
