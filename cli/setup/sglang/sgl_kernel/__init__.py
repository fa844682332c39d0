"""Stub of sgl_kernel: the names that SGLang imports on a CPU, without the kernels. PyPI's package of that name needs
CUDA's driver.

In: nothing. Out: functions that raise NotImplementedError. SGLang calls them only for speculative decoding, for Mamba
layers and to copy KV pages. A server that does none of these computes everything with torch, as SGLang does on a CPU
without AMX.
"""

from typing import Any, Callable


def absent(name: str) -> Callable[..., Any]:
    def call(*_args: Any, **_options: Any) -> Any:
        raise NotImplementedError(f"sgl_kernel.{name}: SGLang's kernels for CPUs are not on PyPI")

    return call


assign_draft_cache_locs_contiguous_cpu = absent("assign_draft_cache_locs_contiguous_cpu")
assign_extend_cache_locs_cpu = absent("assign_extend_cache_locs_cpu")
assign_req_to_token_pool_cpu = absent("assign_req_to_token_pool_cpu")
build_tree_kernel_efficient_cpu = absent("build_tree_kernel_efficient_cpu")
copy_all_layer_kv_cache_cpu = absent("copy_all_layer_kv_cache_cpu")
fill_accept_out_cache_loc_cpu = absent("fill_accept_out_cache_loc_cpu")
fill_bonus_tokens_cpu = absent("fill_bonus_tokens_cpu")
rotate_input_ids_cpu = absent("rotate_input_ids_cpu")
verify_tree_greedy_cpu = absent("verify_tree_greedy_cpu")
