"""The trainer: a causal LM with AdamW, fine-tuned on demonstrations (SFT) or by one GRPO step at a time.

In: token sequences with masks, advantages and the engine's log-probabilities. Out: changed weights and metrics.
Invariants: a call that fails, is not finite or is cancelled leaves weights and optimizer as they were; the same
weights, inputs, thread and rank count give the same bits; how a batch is cut into micro-batches or over ranks does not change
its gradient. Parameters and optimizer state are float32; with dtype bfloat16 the products run in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ..model import checkpoint
from .fine_tuning import fine_tune
from .grpo_step import grpo_step
from ..model.logprobs import UnsupportedModel
from .lora import add_adapters
from .batch.micro_batch import Batch, MicroBatch, idle_micro_batch, micro_batch
from .batch.batching import cpu_micro_tokens, micro_batches
from .policy import Policy
from .ranks.ranks import Ranks
from .reference import Reference
from .options import (
    GrpoOptions,
    LoraOptions,
    Metrics,
    SftExample,
    SftOptions,
    TrainerError,
    TrainSequence,
    checked_mask,
    learning_rate_at,
)
from .updates import Updates

class Trainer:
    """Owns one model and its optimizer. Not safe for calls at the same time: the service runs them one by one.

    On several ranks every rank makes the same calls with the same arguments.
    """

    def __init__(
        self,
        model_dir: str | Path,
        device: str,
        dtype: str,
        seed: int,
        *,
        lora: LoraOptions | None,
        checkpointing: bool,
        ranks: Ranks | None = None,
    ) -> None:
        """Loads `model_dir` in float32. dtype: 'float32' | 'bfloat16' is what matrix products run in.

        device: a torch device, or 'auto': CUDA where there is one, else the CPU. lora: train adapters alone.
        checkpointing: compute activations again in the backward pass. ranks: this process among several.
        """
        self.dtype = dtype
        if self.dtype not in ("float32", "bfloat16"):
            raise TrainerError("trainer.bad_option", f"dtype {dtype!r} is none of float32, bfloat16")
        torch.manual_seed(seed)
        self.ranks = ranks or Ranks()
        self.lora = lora
        try:
            self.device = self.ranks.device(torch.device(_chosen(device)))
        except ValueError as error:
            raise TrainerError("trainer.bad_option", f"train.ranks: {error}") from error
        self.model_dir = str(model_dir)
        self.companions = checkpoint.read_companions(Path(model_dir))
        self.model = self._load_model()
        config = self.model.config.get_text_config()
        self.vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        self.context_tokens = int(getattr(config, "max_position_embeddings", 0) or 0)
        self.max_micro_tokens = cpu_micro_tokens(self.model) if self.device.type == "cpu" else None
        self.policy = self._policy(checkpointing)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.updates = Updates(self.parameters)
        self.reference = Reference(self.parameters)
        # which taking of the reference lies in which file already
        self.saved_reference: tuple[int, Path] | None = None

    def _load_model(self) -> torch.nn.Module:
        if not self.ranks.leads:
            from .ranks.sharding import empty_model

            model = empty_model(self.model_dir)
        else:
            try:
                model = AutoModelForCausalLM.from_pretrained(self.model_dir, dtype=torch.float32, local_files_only=True)
            except (OSError, ValueError) as error:
                raise TrainerError("trainer.no_model", f"no model could be read from {self.model_dir}: {error}") from error
        # eval: dropout would make the ratio of π to π_old noise, and two runs differ
        model.eval()
        self.base_digest = ""
        if self.lora is not None:
            self.base_digest = checkpoint.weights_digest(Path(self.model_dir))[0]
            add_adapters(model, self.lora)
        return model if self.ranks.size > 1 else model.to(self.device)

    def _policy(self, checkpointing: bool) -> Policy:
        leads = self.ranks.leads
        policy = Policy(self.model) if leads else None
        packed = self.ranks.from_leader(policy.packed if policy is not None else None)
        policy = policy or Policy(self.model, checked=False, packed=bool(packed))
        if checkpointing:
            try:
                policy.checkpoint_layers()
            except ValueError as error:
                raise TrainerError("trainer.bad_option", f"train.checkpointing: {error}") from error
        if self.ranks.size > 1:
            from .ranks.sharding import shard

            shard(policy, self.model, self.ranks, self.device, half=self.dtype == "bfloat16")
        return policy

    # ---- training ----

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
        return fine_tune(self, examples, options, on_progress, should_stop)


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
        log π_engine - log π_old over trained tokens, an estimate of KL(π_engine ‖ π_old). With klCoef the reference is the
        policy before the first such step, until `reset` takes another.
        """
        return grpo_step(self, sequences, options, should_stop)


    # ---- between steps ----

    def reset(self, optimizer: bool, reference: bool) -> None:
        """A stage begins. optimizer: moments are forgotten. reference: the KL is measured from the policy as it is now."""
        if optimizer:
            self.updates.fresh()
        if reference:
            self.reference.take()

    def save(self, directory: str | Path, with_optimizer: bool) -> tuple[str, int]:
        """Writes a checkpoint (see saved_state.py); returns (digest, bytes) of the weights."""
        from .saved_state import save

        return save(self, Path(directory), with_optimizer)

    def load(self, directory: str | Path) -> None:
        """Loads weights, and optimizer and reference where there are some; otherwise those start afresh."""
        from .saved_state import load

        load(self, Path(directory))

    # ---- what a step is made of ----

    def update(self, loss: float, rate: float, max_grad_norm: float) -> float:
        return self.updates.apply(loss, rate, max_grad_norm)

    def logprobs(self, micro: MicroBatch, temperature: float, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
        """[trained] log-probabilities of the micro-batch's trained tokens, with a graph, and their entropies."""
        return self.policy(micro, temperature, with_entropy, self.dtype == "bfloat16")

    def micro_batches(self, batch: Batch, max_tokens: int) -> list[MicroBatch]:
        """This rank's share of the batch; as many micro-batches as every other rank has."""
        # a smaller bound than asked for is always allowed: how a batch is cut does not change its gradient
        bound = min(max_tokens, self.max_micro_tokens or max_tokens)
        lengths = [len(row) for row in batch.tokens]
        packed, device = self.policy.packed, self.device
        cuts = [
            [[share[at] for at in part] for part in micro_batches([lengths[at] for at in share], bound, packed=packed)]
            for share in self.ranks.shares(lengths)
        ]
        micros = [
            micro_batch(
                [batch.tokens[at] for at in part],
                [batch.masks[at] for at in part],
                [batch.advantages[at] for at in part],
                None if batch.engine is None else [batch.engine[at] for at in part],
                [batch.denominators[at] for at in part],
                packed=packed,
                device=device,
            )
            for part in cuts[self.ranks.rank]
        ]
        missing = max(len(cut) for cut in cuts) - len(micros)
        return micros + [idle_micro_batch(packed=packed, device=device) for _ in range(missing)]

    def checked(
        self, name: str, tokens: np.ndarray, mask: np.ndarray, engine_logprobs: np.ndarray | None = None
    ) -> np.ndarray:
        known = {"vocabulary": self.vocabulary, "context_tokens": self.context_tokens}
        return checked_mask(name, tokens, mask, engine_logprobs, **known)

    def check_stop(self, should_stop: Callable[[], bool]) -> None:
        if self.ranks.any(should_stop()):
            raise TrainerError("trainer.cancelled", "the caller went away: nothing was changed")


def _chosen(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


__all__ = [
    "GrpoOptions",
    "LoraOptions",
    "Metrics",
    "SftExample",
    "SftOptions",
    "TrainSequence",
    "Trainer",
    "TrainerError",
    "UnsupportedModel",
    "learning_rate_at",
]
