"""A reward of 1 for responses of odd length: an untrained model gets it half of the time, so its groups have both
rewards and give a gradient."""


def reward(answer, task):
    return float(len(task['response']) % 2)
