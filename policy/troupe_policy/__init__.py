"""The torch side of Troupe: processes that render text, run a language model and train it, behind gRPC.

Nothing is imported here: the renderer must start without torch.
"""
