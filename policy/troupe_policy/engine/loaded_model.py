"""A causal LM for inference: loaded with Troupe's attention (attention.py), checked against a plain forward
pass, updated in place.

In: a directory that `transformers` loads (safetensors, config). Out: a model in evaluation mode on its device.
Invariant: names, shapes and config of an update, and its digest and manifest if they are given, are checked before the
first weight changes. An update changes values, never storage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from ..model.checkpoint import CheckpointError, weight_files, weights_digest
from ..model.manifest import check_files, check_model, load_manifest, of_model
from ..model.mapped_tensors import mapped_tensors
from ..model.precision import allow_tf32, resolved_dtype
from ..model.same_config import config_as_saved, config_of, differences
from ..model.unsupported import UnsupportedModel
from .attention import ATTENTION
from .kv import Decode, Gather, KvBlocks, Pass, probe_shapes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class WeightsError(RuntimeError):
    """New weights cannot be applied; the model is unchanged."""


@dataclass(frozen=True)
class LoadedModel:
    model: torch.nn.Module
    device: torch.device
    dtype: torch.dtype
    vocabulary: int
    # the longest context that the model's config allows, in tokens; 2^20 if the config sets no bound
    positions: int
    # (kv heads, key dim, value dim) of each layer
    shapes: list[tuple[int, int, int]]
    # fields of config.json, with which those of new weights are compared; empty turns that check off
    config: dict = field(default_factory=dict)


def pick_device(name: str) -> torch.device:
    """Torch device of this name; `auto` is the first GPU, or the CPU if there is no GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def load_model(directory: str | Path, device: str = "auto", dtype: str = "auto") -> LoadedModel:
    """Loads and checks a model. dtype `auto`: float32 on a CPU, bfloat16 on a GPU.

    Raises UnsupportedModel if transformers cannot load the model with Troupe's attention, or if keys and values in
    blocks do not give the logits of a plain forward pass; CheckpointError if a file differs from the manifest beside
    it.
    """
    check_model(directory)
    target = pick_device(device)
    kind = DTYPES[resolved_dtype(dtype, target)]
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(directory), dtype=kind, attn_implementation=ATTENTION, local_files_only=True
        )
    except ValueError as error:
        raise UnsupportedModel(f"transformers cannot load {directory} with Troupe's attention: {error}") from error
    config = config_as_saved(model)
    return replace(prepare(model, target), config=config)


def prepare(model: torch.nn.Module, device: torch.device) -> LoadedModel:
    """Moves a model that was loaded with Troupe's attention to its device, and checks it. Raises UnsupportedModel."""
    model = model.to(device).eval().requires_grad_(False)
    dtype = next(model.parameters()).dtype
    with torch.inference_mode():
        shapes = probe_shapes(model, device)
        _check(model, shapes, dtype, device)
    allow_tf32(device)
    config = model.config.get_text_config()
    vocabulary = model.get_output_embeddings().weight.shape[0]
    positions = getattr(config, "max_position_embeddings", None) or 1 << 20
    return LoadedModel(model, device, dtype, vocabulary, positions, shapes)


def _check(model, shapes, dtype: torch.dtype, device: torch.device) -> None:
    """Computes the logits of six tokens twice: in one plain forward pass, and over KV blocks (three tokens at once, two
    by a decode each, the last over copied blocks). Raises UnsupportedModel if a logit differs by more than
    b · max(1, the largest logit's size), where b is 1e-3 in float32 and 0.1 in other dtypes.
    """
    vocabulary = model.get_output_embeddings().weight.shape[0]
    tokens = torch.arange(1, 7, device=device)[None] * 7 % vocabulary
    at = torch.arange(6, device=device)
    model.set_attn_implementation("eager")
    try:
        plain = model(input_ids=tokens, use_cache=False).logits[0].float()
    finally:
        model.set_attn_implementation(ATTENTION)
    store = KvBlocks(shapes, 2, 4, dtype, device)

    def piece(start: int, end: int, reads: Decode | list[Gather] | None) -> torch.Tensor:
        current = Pass(at[start:end], None, at[None, start:end], reads)
        return store.run(model, current, tokens[:, start:end]).logits[0].float()

    def decode(position: int) -> Decode:
        return Decode(torch.zeros_like(at[:2]), at[:2] * 4, torch.tensor([position, -1], device=device))

    gather = Gather(0, at[None, :2], at[None, 5:6])
    parts = [piece(0, 3, None), piece(3, 4, decode(3)), piece(4, 5, decode(4)), piece(5, 6, [gather])]
    difference = (torch.cat(parts) - plain).abs().max().item()
    bound = (1e-3 if dtype == torch.float32 else 0.1) * max(1.0, plain.abs().max().item())
    if not difference <= bound:
        raise UnsupportedModel(
            f"{type(model).__name__}: logits over cached keys differ from a plain forward pass by {difference:.3g} (at most "
            f"{bound:.3g} is accepted): the architecture keeps other state than keys and values, or masks attention by itself; "
            "use vllm or sglang for it"
        )


@torch.no_grad()
def update_weights(loaded: LoadedModel, directory: str | Path, digest: str = "", manifest: str = "") -> None:
    """Copies the weights in `directory` over the model's. Raises WeightsError with the model unchanged.

    digest: the expected `checkpoint.weights_digest` of the files. manifest: the expected sha256 of manifest.json, by
    which every file of the model is checked. An empty digest or manifest turns its check off.
    """
    path = Path(directory)
    files = weight_files(path) if path.is_dir() else []
    if not files:
        raise WeightsError(f"{path} holds no safetensors file, or is no directory: give the directory of a checkpoint")
    if manifest:
        _check_manifest(path, digest, manifest)
    elif digest:
        found, _ = weights_digest(path)
        if found != digest:
            raise WeightsError(f"the weights in {path} have the digest {found[:12]}…, but {digest[:12]}… was announced: the files are damaged or replaced")
    _check_config(loaded, path)
    own = dict(loaded.model.named_parameters(remove_duplicate=False)) | dict(loaded.model.named_buffers())
    given = {name: tensor for file in files for name, tensor in mapped_tensors(file).items()}
    if any(name not in own for name in given):
        _update_converted(loaded, path)
        return
    for name, tensor in given.items():
        if own[name].shape != tensor.shape:
            raise WeightsError(f"{name} has the shape {list(tensor.shape)} in {path} and {list(own[name].shape)} in the model: the weights are another model's")
    covered = {own[name].data_ptr() for name in given}
    missing = [name for name, value in loaded.model.named_parameters() if value.data_ptr() not in covered]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise WeightsError(f"the weights in {path} lack {missing[0]}{more}: the weights are another model's")
    for name, tensor in given.items():
        own[name].copy_(tensor)


def _check_manifest(path: Path, digest: str, expected: str) -> None:
    """Checks manifest.json against the sha256 `expected`, its digest of all weights against `digest` unless that is
    empty, and the model's files against its entries. Raises WeightsError.
    """
    try:
        manifest = load_manifest(path, expected) or {}
        if digest and manifest.get("digest") != digest:
            raise WeightsError(f"the manifest in {path} is of weights with another digest than {digest[:12]}…, which was announced")
        check_files(path, manifest, of_model)
    except CheckpointError as error:
        raise WeightsError(str(error)) from error


def _check_config(loaded: LoadedModel, path: Path) -> None:
    """Compares the config beside the weights with the model's. Raises WeightsError."""
    if not loaded.config or not (path / "config.json").is_file():
        return
    try:
        differs = differences(config_of(path), loaded.config)
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path / 'config.json'} cannot be read: {error}") from error
    if differs:
        raise WeightsError(f"the weights in {path} are of another model than the engine's: config.json: {differs}")


def _update_converted(loaded: LoadedModel, path: Path) -> None:
    """Updates the weights of architectures whose files name or split weights differently from the modules in memory."""
    try:
        source = AutoModelForCausalLM.from_pretrained(str(path), dtype=loaded.dtype, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(f"no model could be read from {path}: {error}; expected config.json and safetensors files") from error
    given = dict(source.named_parameters())
    for name, value in loaded.model.named_parameters():
        if name not in given or given[name].shape != value.shape:
            raise WeightsError(f"the weights in {path} are another model's: {name} is missing or has another shape")
    for name, value in loaded.model.named_parameters():
        value.copy_(given[name])
