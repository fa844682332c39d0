"""As parity.py, one every 0.15 s: a run with it takes as long on a quick machine, for faults to come in time."""

import time


def reward(answer, task):
    time.sleep(0.15)
    return float(len(task['response']) % 2)
