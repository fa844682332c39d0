"""Names of sgl_kernel.mamba that SGLang imports on a CPU; see __init__.py."""

from sgl_kernel import absent

causal_conv1d_fn_cpu = absent("mamba.causal_conv1d_fn_cpu")
causal_conv1d_update_cpu = absent("mamba.causal_conv1d_update_cpu")
chunk_gated_delta_rule_cpu = absent("mamba.chunk_gated_delta_rule_cpu")
