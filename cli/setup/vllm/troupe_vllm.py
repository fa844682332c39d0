"""A plugin of vLLM (entry point vllm.general_plugins) that corrects the loading of new weights on CPUs.

In: nothing; vLLM calls `register` in each of its processes. Out: after `reload_weights`, a head that is tied to the
embedding is packed again. vLLM 0.32 packs a copy of the head for its matrix product on CPUs. A checkpoint has no
weights of its own for a tied head, so vLLM's reload skips the packed copy, and the model keeps the head of its first
weights. With the plugin, `/server_info` lists VLLM_TROUPE_PACKS_HEADS among the settings; Troupe checks for it.
"""

from typing import Any


def register() -> None:
    from vllm import envs
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.model_executor.model_loader.reload import inplace

    finalize = inplace.finalize_layerwise_reload
    if getattr(finalize, "packs_heads", False):
        return

    def finalize_and_pack(model: Any, *args: Any, **kwargs: Any) -> None:
        finalize(model, *args, **kwargs)
        for module in model.modules():
            if isinstance(module, ParallelLMHead) and hasattr(module, "cpu_linear"):
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)

    finalize_and_pack.packs_heads = True  # type: ignore[attr-defined]
    inplace.finalize_layerwise_reload = finalize_and_pack
    envs.environment_variables["VLLM_TROUPE_PACKS_HEADS"] = lambda: True
