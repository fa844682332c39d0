"""A reward that an unschooled model gets half of the time, so that its groups are mixed and its gradients are not 0."""


def reward(answer, task):
    return float(len(task['response']) % 2)
