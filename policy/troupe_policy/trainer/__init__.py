"""The trainer process: a causal LM with AdamW, fine-tuned or trained by GRPO steps."""
