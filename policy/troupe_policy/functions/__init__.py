"""Programs about a user's Python file: check that it has a function, list its tools as JSON schemas, read the recipe
that it defines, and call one of its functions."""
