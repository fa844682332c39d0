"""From sequences to micro-batches of tensors."""
