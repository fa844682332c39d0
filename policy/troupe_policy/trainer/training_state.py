"""The state that every call of the trainer works on: a causal LM, its AdamW, the reference policy, and the ranks.

In: a model directory, and how it is trained (dtype, adapters, ranks). Out: micro-batches, log-probabilities with a
graph, optimizer updates. The functions of grpo_step.py, fine_tuning.py, saved_state.py and other files take
this state as their first argument.
Invariants: parameters and optimizer state are float32; with dtype bfloat16 the matrix products run in bfloat16. On
the CPUs of one machine, the same weights, inputs, thread count and rank count give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ..model import checkpoint
from ..model.manifest import CheckpointError, check_model
from ..model.precision import allow_tf32, resolved_dtype
from ..model.same_config import config_as_saved
from .batch.attention_kernels import chosen_kernel
from .batch.batching import cpu_micro_tokens, micro_batches
from .batch.micro_batch import Batch, MicroBatch, idle_micro_batch, micro_batch
from .checkpoint_writer import CheckpointWriter
from .lora import add_adapters
from .optimizer import Optimizer
from .options import LoraOptions, TrainerError, trained_mask
from .parallel_gradients import ParallelGradients, parallel_gradients
from .parked import Parked
from .policy import Policy
from .ranks.ranks import Ranks
from .ranks.sharding import drop_unreduced, empty_model, shard
from .ranks.shares import balanced_shares, cost_terms, sequence_costs
from .reference import Reference


class TrainingState:
    """State of one trainer. It does not support concurrent calls. With several ranks, every rank makes the same calls
    with the same arguments; the sequences of a step are rank 0's.
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
        published_dtype: str = "float32",
        gradient_reduction: str = "micro-batch",
        attention: str = "auto",
        compiled: str = "",
    ) -> None:
        """Loads `model_dir` in float32. dtype: precision of matrix products, 'float32', 'bfloat16', or 'auto' for
        bfloat16 on a GPU and float32 on a CPU.

        device: a torch device, or 'auto' for CUDA if there is a GPU and the CPU otherwise. lora: train adapters only.
        checkpointing: compute activations again in the backward pass. ranks: this process as one of several; None is
        a trainer of one process. published_dtype: dtype of the weights that engines load; 'auto' is the resolved
        `dtype`. gradient_reduction: see `reduce_after`. attention: kernel of packed sequences, see
        attention_kernels.py. compiled: `layer` compiles each layer, '' none. Raises TrainerError trainer.bad_option,
        trainer.no_model, or as add_adapters does; UnsupportedModel.
        """
        if gradient_reduction not in ("micro-batch", "update"):
            raise TrainerError(
                "trainer.bad_option", f"train.gradientReduction is {gradient_reduction!r}: expected micro-batch or update"
            )
        self.gradient_reduction = gradient_reduction
        torch.manual_seed(seed)
        self.ranks = ranks or Ranks()
        self.lora = lora
        try:
            self.device = self.ranks.device(torch.device(_resolved(device)))
        except ValueError as error:
            raise TrainerError("trainer.bad_option", f"train.ranks: {error}") from error
        self.dtype = resolved_dtype(dtype, self.device)
        self.published_dtype = self.dtype if published_dtype == "auto" else published_dtype
        for field, value in (("dtype", self.dtype), ("publishedDtype", self.published_dtype)):
            if value not in ("float32", "bfloat16"):
                raise TrainerError("trainer.bad_option", f"train.{field} is {value!r}: expected auto, float32 or bfloat16")
        self.model_dir = str(model_dir)
        self.companions = checkpoint.read_companions(Path(model_dir))
        self.model = self._load_model()
        # Fields of config.json, with which a checkpoint's are compared.
        self.config = config_as_saved(self.model)
        config = self.model.config.get_text_config()
        self.vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        self.context_tokens = int(getattr(config, "max_position_embeddings", 0) or 0)
        self.max_micro_tokens = cpu_micro_tokens(self.model) if self.device.type == "cpu" else None
        # Computed before the model is sharded, while every parameter still has its whole shape.
        self.cost_terms = cost_terms(self.model)
        self.policy = self._make_policy(checkpointing, attention, compiled)
        allow_tf32(self.device)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = Optimizer(self.parameters)
        self.reference = Reference(self.parameters)
        self.parked = Parked()
        self.writer = CheckpointWriter(self.ranks)
        # (version of the saved reference, its directory): an unchanged reference is linked, not written again
        self.saved_reference: tuple[int, Path] | None = None
        # No forks with checkpointing, which saves memory (each fork holds activations of its own), nor with compiled
        # code, after which torch refuses gradients in forks.
        many = self.ranks.size == 1 and not checkpointing and not compiled
        self.parallel: ParallelGradients[Batch] | None = (
            parallel_gradients(self.model, self.device, self.part_loss) if many else None
        )

    def _load_model(self) -> torch.nn.Module:
        if not self.ranks.is_leader:
            model = empty_model(self.model_dir)
        else:
            try:
                check_model(self.model_dir)
                model = AutoModelForCausalLM.from_pretrained(self.model_dir, dtype=torch.float32, local_files_only=True)
            except (OSError, ValueError, CheckpointError) as error:
                raise TrainerError("trainer.no_model", f"no model could be read from {self.model_dir}: {error}; give a directory with config.json and safetensors files as model.path") from error
        # Evaluation mode turns dropout off: it would add noise to the ratio of π to π_old, and two runs would differ.
        model.eval()
        self.base_digest = ""
        if self.lora is not None:
            self.base_digest = checkpoint.weights_digest(Path(self.model_dir))[0]
            add_adapters(model, self.lora)
        return model if self.ranks.size > 1 else model.to(self.device)

    def _make_policy(self, checkpointing: bool, attention: str, compiled: str) -> Policy:
        if compiled not in ("", "layer") or (compiled and self.ranks.size > 1):
            raise TrainerError("trainer.bad_option", f"train.compile is {compiled!r} with {self.ranks.size} ranks: expected 'layer' with one rank, or false")
        with _refused("attention"):
            kernel = chosen_kernel(attention, self.device, self.dtype == "bfloat16")
            policy = Policy(self.model, attention=kernel, named=attention != "auto", device=self.device) if self.ranks.is_leader else None
        decided = self.ranks.broadcast(policy.decisions if policy is not None else None)
        policy = policy or Policy(self.model, checked=False, decided=decided)  # type: ignore[arg-type]
        if checkpointing:
            with _refused("checkpointing"):
                policy.checkpoint_layers()
        if compiled:
            with _refused("compile"):
                policy.compile_layers()
        if self.ranks.size > 1:
            shard(policy, self.model, self.ranks, self.device, half=self.dtype == "bfloat16")
        return policy

    def update(self, loss: float, rate: float, max_grad_norm: float) -> float:
        """Makes one optimizer update from the accumulated gradients; returns their norm. See Optimizer.apply."""
        self.writer.wait_until_copied()
        return self.optimizer.apply(loss, rate, max_grad_norm)

    def reduce_after(self, is_last: bool) -> None:
        """Decides whether the next backward pass sums the gradients over ranks. is_last: it is the last one before an
        update.

        With gradient_reduction `micro-batch` every backward pass does; with `update` only the last one, and until then
        each rank holds a whole gradient.
        """
        if self.ranks.size > 1 and self.gradient_reduction == "update":
            self.policy.set_requires_gradient_sync(is_last)  # type: ignore[operator]

    def drop_gradients(self) -> None:
        """Drops the gradients of an update that was made, or that failed."""
        self.optimizer.drop_gradients()
        if self.ranks.size > 1 and self.gradient_reduction == "update":
            drop_unreduced(self.policy)

    def logprobs(self, micro: MicroBatch, temperature: float, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the micro-batch's trained tokens, float32 [trained] with a graph; entropies [trained] or
        None.
        """
        return self.policy(micro, temperature, with_entropy, self.dtype == "bfloat16")

    def cross_entropy(self, micro: MicroBatch) -> Tensor:
        """Sum over the micro-batch's trained tokens of -log p / denominator, in nats, with a graph."""
        logp, _ = self.logprobs(micro, 1.0, False)
        return -(logp * micro.mask / micro.denominator).sum()

    def part_loss(self, part: Batch) -> Tensor:
        """Cross-entropy of a part of a batch, computed as one micro-batch."""
        return self.cross_entropy(self.micro_batch(part, range(len(part.denominators))))

    def micro_batches(self, batch: Batch, max_tokens: int) -> list[MicroBatch]:
        """Micro-batches of this rank's share of the batch, filled up with idle ones, so that every rank gets the same
        number of micro-batches.
        """
        lengths = _lengths(batch)
        cuts = [self._cut(lengths, share, self._bound(max_tokens)) for share in self.shares(lengths)]
        micros = [self.micro_batch(batch, part) for part in cuts[self.ranks.rank]]
        missing = max(len(cut) for cut in cuts) - len(micros)
        return micros + [idle_micro_batch(packed=self.policy.packed, device=self.device) for _ in range(missing)]

    def cut_for(self, batch: Batch, max_tokens: int, processes: int) -> list[list[list[int]]]:
        """Micro-batches for each process, as indices into the batch. One has at most max_tokens / processes tokens, or
        is one longer sequence.
        """
        lengths, bound = _lengths(batch), max(1, self._bound(max_tokens) // processes)
        shares = balanced_shares(sequence_costs(lengths, self.cost_terms), lengths, processes)
        return [self._cut(lengths, share, bound) for share in shares]

    def micro_batch(self, batch: Batch, part: Sequence[int]) -> MicroBatch:
        """The sequences of the batch with these indices as tensors."""
        return micro_batch(
            [batch.tokens[at] for at in part],
            [batch.masks[at] for at in part],
            [batch.advantages[at] for at in part],
            None if batch.engine_logp is None else [batch.engine_logp[at] for at in part],
            [batch.denominators[at] for at in part],
            packed=self.policy.packed,
            device=self.device,
        )

    def _bound(self, max_tokens: int) -> int:
        # A smaller bound than the requested one is always allowed: the cut of a batch does not change its gradient.
        return min(max_tokens, self.max_micro_tokens or max_tokens)

    def _cut(self, lengths: Sequence[int], share: Sequence[int], bound: int) -> list[list[int]]:
        parts = micro_batches([lengths[at] for at in share], bound, packed=self.policy.packed)
        return [[share[at] for at in part] for part in parts]

    def shares(self, lengths: Sequence[int]) -> list[list[int]]:
        """Indices of the sequences of each rank, balanced by their cost."""
        return balanced_shares(sequence_costs(lengths, self.cost_terms), lengths, self.ranks.size)

    def trained_mask(
        self, name: str, tokens: np.ndarray, mask: np.ndarray, engine_logp: np.ndarray | None = None
    ) -> np.ndarray:
        """Mask of trained tokens, as options.trained_mask describes, with this model's vocabulary and context as
        bounds.
        """
        bounds = {"vocabulary": self.vocabulary, "context_tokens": self.context_tokens}
        return trained_mask(name, tokens, mask, engine_logp, **bounds)

    def check_stop(self, should_stop: Callable[[], bool]) -> None:
        """Raises TrainerError trainer.cancelled on every rank when `should_stop` is true on any."""
        if self.ranks.any(should_stop()):
            raise TrainerError("trainer.cancelled", "the caller disconnected: weights and optimizer are unchanged")


@contextmanager
def _refused(field: str) -> Iterator[None]:
    """Raises the ValueError of an option as TrainerError trainer.bad_option."""
    try:
        yield
    except ValueError as error:
        raise TrainerError("trainer.bad_option", f"train.{field}: {error}") from error


def _lengths(batch: Batch) -> Sequence[int]:
    return batch.lengths if batch.lengths is not None else [len(row) for row in batch.tokens]


def _resolved(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
