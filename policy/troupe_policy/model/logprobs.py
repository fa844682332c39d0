"""Log-probabilities of given tokens from hidden states and the language-model head, in chunks.

In: hidden states [tokens, d], the head's weight [vocabulary, d], target ids. Out: log p of each target, and
optionally the entropy of each distribution. Invariant: no [tokens × vocabulary] tensor outlives a chunk, in forward
or backward: the backward pass computes a chunk's logits again from the saved hidden states and log-sum-exp.
Cost: one more matrix product with the head than without chunks. Memory: chunk × vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from .unsupported import UnsupportedModel

# Upper bound on a chunk's float32 logits in bytes, on a CPU (cpuBytes) and on a GPU (cudaBytes). A chunk has leastRows
# tokens even if their logits exceed the bound. On a CPU a chunk should fit the cache. On a GPU it should be large,
# because every chunk reads and writes the head's whole gradient; leastRows is there for the same reason. The memory
# estimate of `train --dry-run` reads head_chunk.json too.
CHUNK = json.loads(Path(__file__).with_name("head_chunk.json").read_text())


@dataclass(frozen=True)
class Head:
    """Parameters of a language-model head: logits = softcap(scale · (h Wᵀ + b)). weight: [vocabulary, d]. bias:
    [vocabulary] or None.
    """

    weight: Tensor
    bias: Tensor | None
    scale: float = 1.0
    # softcap(z) = c · tanh(z / c) with c = softcap; 0 is off
    softcap: float = 0.0


def chunk_rows(vocabulary: int, device_type: str) -> int:
    """Upper bound on the tokens of a chunk, whose logits are in memory at once. device_type: `cpu`; every other value
    means a GPU.
    """
    size: int = CHUNK["cpuBytes" if device_type == "cpu" else "cudaBytes"]
    return max(CHUNK["leastRows"], size // (4 * max(1, vocabulary)))


def _logits(hidden: Tensor, head_weight: Tensor, bias: Tensor | None, scale: float, softcap: float) -> Tensor:
    """Logits [rows, vocabulary] before the temperature, float32 (float64 for float64 input), in new memory: callers
    change it in place.
    """
    logits = nn.functional.linear(hidden, head_weight, bias)
    logits = logits.float() if logits.dtype != torch.float64 else logits
    if scale != 1.0:
        logits.mul_(scale)
    if softcap > 0.0:
        logits.div_(softcap).tanh_().mul_(softcap)
    return logits


class _ChunkedLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913
        ctx: torch.autograd.function.FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        scale: float,
        softcap: float,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        rows = chunk_rows(weight.shape[0], weight.device.type)
        count = hidden.shape[0]
        kind = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        logp = torch.empty(count, dtype=kind, device=hidden.device)
        lse = torch.empty(count, dtype=kind, device=hidden.device)
        entropy = torch.zeros(count if with_entropy else 0, dtype=kind, device=hidden.device)
        for start in range(0, count, rows):
            end = min(count, start + rows)
            z = _logits(hidden[start:end], weight, bias, scale, softcap)
            if temperature != 1.0:
                z.div_(temperature)
            top = z.amax(dim=-1, keepdim=True)
            picked = z.gather(1, targets[start:end, None]).squeeze(1)
            if with_entropy:
                shifted = z.sub_(top)
                mass = shifted.exp()
                total = mass.sum(dim=-1)
                # Entropy H = log Σ exp(z - top) - Σ p·(z - top), p = softmax(z). The second sum is a row-wise dot
                # product, which needs no further [rows, vocabulary] tensor.
                mean = torch.bmm(mass.unsqueeze(1), shifted.unsqueeze(2)).flatten() / total
                entropy[start:end] = total.log() - mean
            else:
                total = z.sub_(top).exp_().sum(dim=-1)
            lse[start:end] = total.log() + top.squeeze(1)
            logp[start:end] = picked - lse[start:end]
        ctx.save_for_backward(hidden, weight, bias, targets, lse)
        ctx.numbers = (temperature, scale, softcap)  # type: ignore[attr-defined]
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx, grad_logp: Tensor, _grad_entropy: Tensor):  # type: ignore[no-untyped-def]
        hidden, weight, bias, targets, lse = ctx.saved_tensors
        temperature, scale, softcap = ctx.numbers
        rows = chunk_rows(weight.shape[0], weight.device.type)
        count = hidden.shape[0]
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        # The sums over chunks are float32, whatever the head's dtype: bfloat16 sums would lose small terms.
        total_kind = torch.float64 if weight.dtype == torch.float64 else torch.float32
        grad_weight = torch.zeros_like(weight, dtype=total_kind) if need_weight else None
        grad_bias = torch.zeros_like(bias, dtype=total_kind) if need_bias and bias is not None else None
        for start in range(0, count, rows):
            end = min(count, start + rows)
            part = hidden[start:end]
            z = _logits(part, weight, bias, scale, softcap)
            slope = (1.0 - (z / softcap).square_()) if softcap > 0.0 else None
            if temperature != 1.0:
                z.div_(temperature)
            grad = grad_logp[start:end]
            # d logp / d z = onehot - p
            g = z.sub_(lse[start:end, None]).exp_().mul_(-grad[:, None])
            g.scatter_add_(1, targets[start:end, None], grad[:, None])
            if slope is not None:
                g.mul_(slope)
            factor = scale / temperature
            if factor != 1.0:
                g.mul_(factor)
            g = g.to(weight.dtype)
            if grad_hidden is not None:
                torch.mm(g, weight, out=grad_hidden[start:end])
            if grad_weight is not None:
                if grad_weight.dtype == g.dtype:
                    grad_weight.addmm_(g.t(), part)
                else:
                    grad_weight.add_(g.t() @ part)  # adds bfloat16 to float32 without a float32 copy of the product
            if grad_bias is not None:
                # The scale applies to the bias as it does to the weight.
                grad_bias += g.sum(dim=0).to(total_kind)
        return (
            grad_hidden,
            grad_weight.to(weight.dtype) if grad_weight is not None else None,
            grad_bias.to(bias.dtype) if grad_bias is not None else None,
            None, None, None, None, None,
        )  # fmt: skip


def chunked_logprobs(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """log softmax(logits / temperature)[target] of each token, natural log.

    hidden: [tokens, d]; the head is cast to the dtype of `hidden`. targets: int64 [tokens]. Returns logp float32
    [tokens] (float64 for float64 input) with a graph to hidden and the head, and the entropies [tokens] in nats without
    a graph, or None. Raises ValueError if the temperature is not positive.
    """
    if temperature <= 0:
        raise ValueError(f"the temperature is {temperature}: it must be positive")
    weight = head.weight if head.weight.dtype == hidden.dtype else head.weight.to(hidden.dtype)
    bias = head.bias if head.bias is None or head.bias.dtype == hidden.dtype else head.bias.to(hidden.dtype)
    logp, entropy = _ChunkedLogProbs.apply(
        hidden.contiguous(), weight, bias, targets, float(temperature), head.scale, head.softcap, with_entropy
    )
    return logp, entropy if with_entropy else None


def head_of(model: nn.Module) -> Head:
    """Reads the head of a transformers causal LM. Raises UnsupportedModel if the model has no linear head."""
    layer = model.get_output_embeddings()  # type: ignore[operator]
    weight = getattr(layer, "weight", None)
    if weight is None or weight.dim() != 2:
        raise UnsupportedModel(f"{type(model).__name__} has no linear language-model head")
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    scale = 1.0
    if getattr(config, "logit_scale", None):
        scale *= float(config.logit_scale)
    if getattr(config, "logits_scaling", None):
        scale /= float(config.logits_scaling)
    softcap = float(getattr(config, "final_logit_softcapping", None) or 0.0)
    return Head(weight=weight, bias=getattr(layer, "bias", None), scale=scale, softcap=softcap)


def hidden_states_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Returns a function from ids int64 [batch, length] to the last hidden states [batch, length, d] of a transformers
    causal LM.

    Right-padded rows need no mask: attention is causal, so no token sees the padding after it. Raises
    UnsupportedModel if the model has no base_model apart from its head.
    """
    base = model.base_model
    if base is model:
        raise UnsupportedModel(f"{type(model).__name__} has no base_model apart from its language-model head")
    return lambda ids: base(input_ids=ids, use_cache=False).last_hidden_state


def check_head(model: nn.Module, head: Head, hidden_states: Callable[[Tensor], Tensor]) -> None:
    """Compares our logits with the model's own on eight tokens. Raises UnsupportedModel if one differs by more than
    about 1e-3 (float32) or 5e-2 (other dtypes) times (1 + the largest absolute logit).

    Without this check, a model whose head transforms logits in an unknown way (another scaling, a mixture) would
    silently train on wrong probabilities.
    """
    device = head.weight.device
    ids = (torch.arange(8, device=device) * 7919 % head.weight.shape[0])[None]
    with torch.no_grad():
        theirs = model(input_ids=ids, use_cache=False).logits[0].float()
        ours = _logits(hidden_states(ids)[0].to(head.weight.dtype), head.weight, head.bias, head.scale, head.softcap)
    tolerance = 1e-3 if head.weight.dtype == torch.float32 else 5e-2
    finite = torch.isfinite(theirs)
    spread = theirs[finite].abs().max().item() if finite.any() else 0.0
    if theirs.shape != ours.shape or not torch.allclose(ours[finite], theirs[finite], atol=tolerance * (1.0 + spread)):
        raise UnsupportedModel(f"the logits of {type(model).__name__} differ from its head applied to its hidden states: Troupe cannot compute its log-probabilities")
