"""The trainer: a causal LM with AdamW, fine-tuned on demonstrations (SFT) or by one GRPO step at a time.

In: token sequences with masks, advantages and the engine's log-probabilities. Out: changed weights and metrics.
Invariants: a call that fails, is not finite or is cancelled leaves weights and optimizer as they were; the same
weights, inputs and thread count give the same bits; how a batch is cut into micro-batches does not change its gradient.
Parameters and optimizer state are float32; with dtype bfloat16 the products run in bfloat16 (autocast).
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from . import checkpoint
from .logprobs import UnsupportedModel, check_head, chunked_logprobs, head_of, hidden_states_of
from .losses import LOSS_NORMS, sequence_denominators, tis_weight, token_mean_policy_loss
from .packing import epoch_batches, micro_batches, pad_right, target_positions

Metrics = dict[str, float]

# SFT has no bound in its options.
SFT_MICRO_BATCH_TOKENS = 8192

# On a CPU larger micro-batches are not faster: saved activations are kept below this, or twice the parameters' size.
CPU_ACTIVATION_BYTES = 256 * 1024 * 1024


class TrainerError(RuntimeError):
    """Why a call was refused or rejected. `code` is for programs: trainer.not_finite, trainer.bad_sequence, …"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class SftExample:
    """tokens [n] int32; mask [n] uint8, 1 where the loss counts."""

    tokens: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class TrainSequence:
    """One trajectory. tokens [n] int32; mask [n] uint8, 1 where sampled; engine_logprobs [n] float32, natural log."""

    trajectory: str
    tokens: np.ndarray
    mask: np.ndarray
    engine_logprobs: np.ndarray
    advantage: float
    group: int


@dataclass(frozen=True)
class SftOptions:
    learning_rate: float
    epochs: int = 1
    batch_sequences: int = 32
    # of all optimizer steps, with a learning rate that rises linearly
    warmup_share: float = 0.04
    # 0: no clipping
    max_grad_norm: float = 1.0
    seed: int = 0
    # after the warm-up: 'cosine' falls to 0, 'constant' stays
    schedule: str = "cosine"


@dataclass(frozen=True)
class GrpoOptions:
    learning_rate: float
    clip_low: float = 0.2
    clip_high: float = 0.28
    loss_norm: str = "batch-tokens"
    inner_steps: int = 1
    micro_batch_tokens: int = 8192
    temperature: float = 1.0
    # 0: no importance weight
    tis_cap: float = 2.0
    max_grad_norm: float = 1.0
    # 0: off
    dual_clip: float = 0.0


@dataclass
class _Micro:
    """A padded micro-batch and where its trained tokens are. All [trained] but `ids` [rows, longest]."""

    ids: Tensor
    positions: Tensor
    targets: Tensor
    advantage: Tensor
    engine: Tensor
    denominator: Tensor
    old: Tensor | None = None


class _Meter:
    """What a call cost: wall and CPU time since it was made, and the process's peak memory so far."""

    def __init__(self) -> None:
        self.wall = time.perf_counter()
        self.cpu = time.process_time()

    def read(self, tokens: int) -> Metrics:
        seconds = time.perf_counter() - self.wall
        return {
            "seconds": seconds,
            "tokensPerSecond": tokens / max(seconds, 1e-9),
            "cpuMs": (time.process_time() - self.cpu) * 1000.0,
            "maxRssBytes": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        }


def learning_rate_at(step: int, steps: int, options: SftOptions) -> float:
    """The learning rate of optimizer step `step` (0-based) of `steps`: linear warm-up, then the schedule."""
    warmup = round(options.warmup_share * steps)
    if step < warmup:
        return options.learning_rate * (step + 1) / (warmup + 1)
    if options.schedule == "constant":
        return options.learning_rate
    share = (step - warmup) / max(1, steps - warmup)
    return options.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


class Trainer:
    """Owns one model and its optimizer. Not safe for calls at the same time: the service runs them one by one."""

    def __init__(self, model_dir: str | Path, device: str = "cpu", dtype: str = "float32", seed: int = 0) -> None:
        """Loads `model_dir` in float32. dtype: 'float32' (or 'auto') | 'bfloat16' is what matrix products run in.

        device: a torch device, or 'auto': CUDA where there is one, else the CPU.
        """
        dtype = "float32" if dtype == "auto" else dtype
        if dtype not in ("float32", "bfloat16"):
            raise TrainerError("trainer.bad_option", f"dtype {dtype!r} is none of float32, bfloat16")
        torch.manual_seed(seed)
        self.device = torch.device(_chosen(device))
        self.dtype = dtype
        self.model_dir = str(model_dir)
        try:
            model = AutoModelForCausalLM.from_pretrained(self.model_dir, dtype=torch.float32, local_files_only=True)
        except (OSError, ValueError) as error:
            raise TrainerError("trainer.no_model", f"no model could be read from {model_dir}: {error}") from error
        # eval: dropout would make the ratio of π to π_old noise, and two runs differ
        self.model = model.to(self.device).eval()
        self.companions = checkpoint.read_companions(Path(model_dir))
        self.hidden_states = hidden_states_of(self.model)
        self.head = head_of(self.model)
        check_head(self.model, self.head, self.hidden_states)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        config = self.model.config.get_text_config()
        self.vocabulary = int(self.head.weight.shape[0])
        self.context_tokens = int(getattr(config, "max_position_embeddings", 0) or 0)
        self.max_micro_tokens = _cpu_micro_tokens(self.model) if self.device.type == "cpu" else None
        self.updates = 0
        self.optimizer = self._new_optimizer()

    # ---- SFT ----

    def sft(
        self,
        examples: Sequence[SftExample],
        options: SftOptions,
        on_progress: Callable[[float, float], None] = lambda done, loss: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Metrics:
        """Fine-tunes on masked tokens; the loss of a batch is its token mean, in nats.

        The optimizer starts afresh and is afresh afterwards: RL does not inherit the moments of imitation.
        on_progress(share of optimizer steps done, loss of the newest batch).
        """
        if options.schedule not in ("cosine", "constant"):
            raise TrainerError("trainer.bad_option", f"schedule {options.schedule!r} is none of cosine, constant")
        if options.epochs < 1 or options.batch_sequences < 1:
            raise TrainerError("trainer.bad_option", "epochs and batchSequences must be at least 1")
        masks = [self._checked(f"example {at}", e.tokens, e.mask) for at, e in enumerate(examples)]
        kept = [at for at, mask in enumerate(masks) if mask.any()]
        if not kept:
            raise TrainerError("trainer.empty_batch", "no example has a token to train on")
        meter = _Meter()
        lengths = [len(examples[at].tokens) for at in kept]
        steps = options.epochs * -(-len(kept) // options.batch_sequences)
        batches = (
            [kept[index] for index in batch]
            for epoch in range(options.epochs)
            for batch in epoch_batches(lengths, options.batch_sequences, options.seed, epoch)
        )
        before = self._snapshot()
        self.optimizer, self.updates = self._new_optimizer(), 0
        losses: list[float] = []
        trained, norm, rate = 0, 0.0, 0.0
        try:
            for step, batch in enumerate(batches):
                rate = learning_rate_at(step, steps, options)
                counts = [int(masks[at].sum()) for at in batch]
                micros = [
                    self._micro([examples[at].tokens for at in part], [masks[at] for at in part], [0.0] * len(part),
                                None, [float(sum(counts))] * len(part))
                    for part in self._cut(batch, [len(examples[at].tokens) for at in batch], SFT_MICRO_BATCH_TOKENS)
                ]  # fmt: skip
                loss = 0.0
                for micro in micros:
                    self._check_stop(should_stop)
                    logp, _ = self._logprobs(micro, 1.0, False)
                    part_loss = -(logp / micro.denominator).sum()
                    part_loss.backward()
                    loss += part_loss.item()
                norm = self._update(loss, rate, options.max_grad_norm)
                trained += sum(counts)
                losses.append(loss)
                on_progress((step + 1) / steps, loss)
        except BaseException:
            self._restore(before)
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        self.optimizer, self.updates = self._new_optimizer(), 0
        tail = losses[-max(1, len(losses) // 10) :]
        return {
            "loss": sum(tail) / len(tail),
            "firstLoss": losses[0],
            "gradNorm": norm,
            "lr": rate,
            "steps": float(len(losses)),
            "sequences": float(len(kept)),
            "trainedTokens": float(trained),
            **meter.read(sum(lengths) * options.epochs),
        }

    # ---- GRPO ----

    def step(
        self,
        sequences: Sequence[TrainSequence],
        options: GrpoOptions,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Metrics:
        """One GRPO step of DESIGN §6: `inner_steps` optimizer updates on the same batch.

        π_old is what this trainer computes at the sampling temperature before the first update: all micro-batches of
        the first inner step run on unchanged weights, so their log-probabilities are π_old and no extra forward is
        needed. tokensPerSecond counts all tokens, prompts too, once an inner step. `klEngine` is the mean of
        log π_engine - log π_old over trained tokens, an estimate of KL(π_engine ‖ π_old).
        """
        self._check_options(options)
        masks = [self._checked(s.trajectory, s.tokens, s.mask, s.engine_logprobs) for s in sequences]
        counts = [int(mask.sum()) for mask in masks]
        if sum(counts) == 0:
            raise TrainerError("trainer.empty_batch", "no sequence has a token to train on")
        meter = _Meter()
        denominators = sequence_denominators(counts, [s.group for s in sequences], options.loss_norm)
        kept = [at for at, count in enumerate(counts) if count > 0]
        micros = [
            self._micro(
                [sequences[at].tokens for at in part],
                [masks[at] for at in part],
                [sequences[at].advantage for at in part],
                [sequences[at].engine_logprobs for at in part],
                [denominators[at] for at in part],
            )
            for part in self._cut(kept, [len(sequences[at].tokens) for at in kept], options.micro_batch_tokens)
        ]
        # One update is atomic by itself: its gradient is checked before anything is changed.
        before = self._snapshot() if options.inner_steps > 1 else None
        total = sum(counts)
        sums = {"loss": 0.0, "clipped": 0.0, "kl": 0.0, "tis": 0.0, "capped": 0.0, "entropy": 0.0}
        norm = 0.0
        try:
            for inner in range(options.inner_steps):
                loss = 0.0
                for micro in micros:
                    self._check_stop(should_stop)
                    loss += self._grpo_micro(micro, options, sums, first=inner == 0)
                norm = self._update(loss, options.learning_rate, options.max_grad_norm)
                sums["loss"] += loss
        except BaseException:
            if before is not None:
                self._restore(before)
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        return {
            "loss": sums["loss"] / options.inner_steps,
            "gradNorm": norm,
            "clipFraction": sums["clipped"] / (total * options.inner_steps),
            "klEngine": sums["kl"] / total,
            "tisMean": sums["tis"] / total,
            "tisCapped": sums["capped"] / total,
            "entropy": sums["entropy"] / total,
            "trainedTokens": float(total),
            "sequences": float(len(sequences)),
            "lr": options.learning_rate,
            **meter.read(sum(len(s.tokens) for s in sequences) * options.inner_steps),
        }

    def _grpo_micro(self, micro: _Micro, options: GrpoOptions, sums: dict[str, float], *, first: bool) -> float:
        """Forward and backward of one micro-batch; adds to the gradient and to `sums`, returns its part of the loss."""
        logp, entropy = self._logprobs(micro, options.temperature, first)
        if first or micro.old is None:
            micro.old = logp.detach()
        weight = tis_weight(micro.old, micro.engine, options.tis_cap) if options.tis_cap > 0 else None
        result = token_mean_policy_loss(
            logp,
            micro.old,
            micro.advantage,
            torch.ones_like(logp),
            clip_low=options.clip_low,
            clip_high=options.clip_high,
            denominator=micro.denominator,
            weight=weight,
            dual_clip=options.dual_clip,
        )
        result.loss.backward()
        sums["clipped"] += result.clipped.sum().item()
        if first:
            sums["kl"] += (micro.engine - micro.old).double().sum().item()
            sums["tis"] += weight.double().sum().item() if weight is not None else float(logp.numel())
            sums["capped"] += (weight >= options.tis_cap).sum().item() if weight is not None else 0.0
            sums["entropy"] += entropy.double().sum().item() if entropy is not None else 0.0
        return result.loss.item()

    # ---- checkpoints ----

    def save(self, directory: str | Path, with_optimizer: bool) -> tuple[str, int]:
        """Writes a checkpoint (see checkpoint.py); returns (digest, bytes) of the weights."""
        state = self._optimizer_state() if with_optimizer else None
        return checkpoint.save(directory, self.model, self.companions, state, {"updates": self.updates})

    def load(self, directory: str | Path) -> None:
        """Loads weights, and the optimizer's state where there is one; otherwise the optimizer starts afresh."""
        manifest = checkpoint.read_manifest(directory)
        state = checkpoint.load_optimizer(directory)
        checkpoint.load_weights(directory, self.model)
        self.optimizer, self.updates = self._new_optimizer(), 0
        if state is not None:
            self.updates = int(((manifest or {}).get("optimizer") or {}).get("updates", 0))
            self._load_optimizer_state(state)

    # ---- parts ----

    def _new_optimizer(self) -> torch.optim.AdamW:
        # No weight decay: at the learning rates of RL it is below what float32 keeps, and the paper names none.
        return torch.optim.AdamW(
            list(self.parameters.values()), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
        )

    def _optimizer_state(self) -> dict[str, Tensor]:
        """Flat: '<what>/<parameter>' → tensor. Empty before the first update."""
        names = {parameter: name for name, parameter in self.parameters.items()}
        return {
            f"{what}/{names[parameter]}": value.contiguous()
            for parameter, values in self.optimizer.state.items()
            for what, value in values.items()
        }

    def _load_optimizer_state(self, flat: dict[str, Tensor]) -> None:
        for key, value in flat.items():
            what, _, name = key.partition("/")
            parameter = self.parameters.get(name)
            if parameter is None or (what != "step" and value.shape != parameter.shape):
                raise checkpoint.CheckpointError("trainer.shape_mismatch", f"optimizer state {key} fits no parameter")
            self.optimizer.state[parameter][what] = value.to(self.device).clone()

    def _snapshot(self) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
        with torch.no_grad():
            weights = {name: p.detach().to("cpu", copy=True) for name, p in self.parameters.items()}
            state = {name: value.detach().to("cpu", copy=True) for name, value in self._optimizer_state().items()}
        return weights, state, self.updates

    def _restore(self, snapshot: tuple[dict[str, Tensor], dict[str, Tensor], int]) -> None:
        weights, state, self.updates = snapshot
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        self.optimizer = self._new_optimizer()
        self._load_optimizer_state(state)

    def _update(self, loss: float, rate: float, max_grad_norm: float) -> float:
        """Checks loss and gradient, clips, and updates; returns the norm before clipping. Raises, unchanged, if not finite."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainerError("trainer.not_finite", f"loss {loss}, gradient norm {norm}: the step changed nothing")
        if max_grad_norm > 0 and norm > max_grad_norm:
            torch._foreach_mul_(gradients, max_grad_norm / (norm + 1e-6))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        return norm

    def _logprobs(self, micro: _Micro, temperature: float, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
        """[trained] log-probabilities of the micro-batch's trained tokens, with a graph, and their entropies."""
        with self._autocast():
            hidden = self.hidden_states(micro.ids)
        picked = hidden.reshape(-1, hidden.shape[-1]).index_select(0, micro.positions)
        if self.dtype == "bfloat16":
            picked = picked.bfloat16()
        return chunked_logprobs(picked, self.head, micro.targets, temperature=temperature, with_entropy=with_entropy)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.dtype != "bfloat16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _cut(self, indices: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
        # a smaller bound than asked for is always allowed: how a batch is cut does not change its gradient
        max_tokens = min(max_tokens, self.max_micro_tokens or max_tokens)
        return [[indices[at] for at in part] for part in micro_batches(lengths, max_tokens)]

    def _micro(
        self,
        tokens: Sequence[np.ndarray],
        masks: Sequence[np.ndarray],
        advantages: Sequence[float],
        engine: Sequence[np.ndarray] | None,
        denominators: Sequence[float],
    ) -> _Micro:
        ids = pad_right(tokens, self.device)
        positions, owners = target_positions(masks, ids.shape[1])
        picks = [np.flatnonzero(mask[1:]) + 1 for mask in masks]
        targets = np.concatenate([row[at] for row, at in zip(tokens, picks, strict=True)]).astype(np.int64)
        logprobs = (
            np.concatenate([row[at] for row, at in zip(engine, picks, strict=True)]).astype(np.float32)
            if engine is not None
            else np.zeros(len(targets), dtype=np.float32)
        )
        return _Micro(
            ids=ids,
            positions=torch.from_numpy(positions).to(self.device),
            targets=torch.from_numpy(targets).to(self.device),
            advantage=torch.tensor(advantages, dtype=torch.float32)[owners].to(self.device),
            engine=torch.from_numpy(logprobs).to(self.device),
            denominator=torch.tensor(denominators, dtype=torch.float32)[owners].to(self.device),
        )

    def _checked(
        self, name: str, tokens: np.ndarray, mask: np.ndarray, engine_logprobs: np.ndarray | None = None
    ) -> np.ndarray:
        """The mask without the first token, which nothing predicts; raises where the arrays cannot be trained on."""
        count = len(tokens)
        if len(mask) != count or (engine_logprobs is not None and len(engine_logprobs) != count):
            raise TrainerError("trainer.bad_sequence", f"{name}: tokens, mask and logprobs differ in length")
        if count == 0:
            raise TrainerError("trainer.bad_sequence", f"{name}: no tokens")
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.vocabulary:
            raise TrainerError("trainer.bad_sequence", f"{name}: a token id is outside the {self.vocabulary} of the model")
        if self.context_tokens and count > self.context_tokens:
            raise TrainerError(
                "trainer.context_exceeded", f"{name}: {count} tokens do not fit the model's {self.context_tokens}"
            )
        trained = mask.astype(bool)
        trained[0] = False
        if engine_logprobs is not None and not np.isfinite(engine_logprobs[trained]).all():
            raise TrainerError("trainer.not_finite", f"{name}: an engine log-probability is not finite")
        return trained

    def _check_options(self, options: GrpoOptions) -> None:
        problems = [
            (options.loss_norm not in LOSS_NORMS, f"lossNorm {options.loss_norm!r} is none of {', '.join(LOSS_NORMS)}"),
            (options.inner_steps < 1, "innerSteps must be at least 1"),
            (options.micro_batch_tokens < 1, "microBatchTokens must be at least 1"),
            (not options.temperature > 0, "temperature must be positive: a greedy policy has no gradient"),
            (not 0 <= options.clip_low < 1 or options.clip_high < 0, "clipLow must be in [0, 1), clipHigh at least 0"),
        ]
        for wrong, message in problems:
            if wrong:
                raise TrainerError("trainer.bad_option", message)

    def _check_stop(self, should_stop: Callable[[], bool]) -> None:
        if should_stop():
            raise TrainerError("trainer.cancelled", "the caller went away: nothing was changed")


def _chosen(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _cpu_micro_tokens(model: torch.nn.Module) -> int:
    """Padded tokens whose saved activations stay within CPU_ACTIVATION_BYTES or twice the parameters.

    A layer saves about 18 vectors of the hidden and 5 of the intermediate size a token (measured on Llama models
    within a tenth); a model with other parts is off by a factor that the bound's slack absorbs.
    """
    config = model.config.get_text_config()
    hidden = int(getattr(config, "hidden_size", 0) or 1024)
    inner = int(getattr(config, "intermediate_size", 0) or 4 * hidden)
    layers = int(getattr(config, "num_hidden_layers", 0) or 12)
    parameter_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    return max(1, max(CPU_ACTIVATION_BYTES, 2 * parameter_bytes) // (layers * (18 * hidden + 5 * inner) * 4))


__all__ = [
    "GrpoOptions",
    "Metrics",
    "SftExample",
    "SftOptions",
    "TrainSequence",
    "Trainer",
    "TrainerError",
    "UnsupportedModel",
    "learning_rate_at",
]
