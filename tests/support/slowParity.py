"""The reward of parity.py after a wait of 0.15 s, so that a run lasts long enough for faults on a fast machine too."""

import select


def reward(answer, task):
    select.select([], [], [], 0.15)  # time.sleep fails under libfaketime
    return float(len(task['response']) % 2)
