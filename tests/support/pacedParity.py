"""The reward of parity.py after a wait of 0.02 s; of 2 s while the file that TROUPE_TEST_PACE names is there, so that a run
lasts as long as a test has faults for it."""

import os
import select


def reward(answer, task):
    select.select([], [], [], 2 if os.path.exists(os.environ['TROUPE_TEST_PACE']) else 0.02)
    return float(len(task['response']) % 2)
