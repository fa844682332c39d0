"""A reward of 1 if the answer is the truth as it is written: the truths of the quickstart are integers."""


def reward(answer, task):
    return float(answer == task['truth'].strip())
