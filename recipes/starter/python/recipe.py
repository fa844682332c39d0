"""Teaches a small model to look prices up. All fields with their values: npx troupe config print recipe.py"""


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



def reward(answer, task):
    """Judges an answer.

    answer: text in the last <answer>, '' if there is none. task: {id, messages, truth, metadata, response}.
    """
    number = answer.removeprefix("\\boxed{").removesuffix("}").strip()
    if number == task["truth"]:
        return 1
    return {"score": 0, "why": f"{number or 'nothing'} instead of {task['truth']}"}


recipe = {
    # The quickstart's model has 386,000 random weights. To use a model of yours:
    # "model": {"from": "directory", "path": DIR}
    "extends": "quickstart",
    "data": {
        "file": "problems.jsonl",  # the last two are held out for the evaluation
        "demonstrationsFile": "demonstrations.jsonl",  # imitated before RL; a model that can call tools needs none
    },
    "tools": [price],  # their calls run in the sandbox
    "reward": reward,  # runs in a process of its own, with your rights, not in the sandbox
    "coldStart": {"demonstrations": 800, "epochs": 4},
    "rollout": {"groupSize": 8, "groupsPerStep": 8},
    "selection": {"keep": 4},
    "train": {"steps": 8},
    "evaluation": {"problems": 2, "samples": 16},
}
