"""The reward of parity.py after a wait of 0.15 s, so that a run lasts long enough for faults on a fast machine too."""

import time


def reward(answer, task):
    time.sleep(0.15)
    return float(len(task['response']) % 2)
