"""The torch side of Troupe: processes that render text, run a language model, train it, and judge answers.

engine/, trainer/, render/ and reward/ run in processes of their own and never import one another; model/ holds the
code that they share, server.py starts the first three. This file imports nothing, so that the renderer starts without
torch.
"""
