"""Tools: every function in this file whose name does not begin with an underscore. Calls run in the sandbox."""

_PRICES = {"lamp": 17, "chair": 43, "table": 88, "sofa": 65, "rug": 31, "bed": 94, "desk": 76, "clock": 22, "vase": 13, "stool": 28}


def price(item: str, count: int) -> int:
    """Looks up what a number of items costs together.

    Args:
        item: The item in the singular, such as lamp.
        count: How many of them.
    """
    if item not in _PRICES:
        raise ValueError(f"no item is named {item!r}; items: {', '.join(_PRICES)}")
    return _PRICES[item] * count
