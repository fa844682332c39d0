"""The reward of parity.py after a wait of 0.02 s, or of 2 s while the file that TROUPE_TEST_PACE names exists. A test
keeps the file until it has injected all its faults, so that the run does not end before."""

import os
import select


def reward(answer, task):
    select.select([], [], [], 2 if os.path.exists(os.environ['TROUPE_TEST_PACE']) else 0.02)
    return float(len(task['response']) % 2)
