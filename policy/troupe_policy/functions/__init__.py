"""Functions of a user's Python file: whether they are there, the schemas of those that are tools, and one call of one of them."""
