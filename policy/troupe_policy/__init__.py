"""The torch side of Troupe: processes that render text, run a language model, train it, and judge answers.

engine/, trainer/, render/ and reward/ run in processes of their own and never import one another; server.py starts the
first three. model/ holds code that they share; functions/ holds programs that read a user's Python file. This file
imports nothing, so that the renderer starts without torch.
"""
