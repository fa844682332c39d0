"""A `verifiers` environment for tests: additions, two weighted rewards, and faults that the argument `fault` selects."""

import os
import subprocess
import time

import verifiers as vf
from datasets import Dataset


def answer_of(kind: str, n: int):
    return {"texts": str(2 * n + 3), "numbers": n, "truths": n > 0, "none": None}[kind]


def load_environment(count: int = 40, fault: str = "", answers: str = "texts"):
    if fault == "load":
        raise RuntimeError("the data set is not there")
    if fault.startswith("child"):
        with open(fault.split()[-1], "w") as file:
            print(subprocess.Popen(["sleep", "600"]).pid, file=file)
    if "and hang" in fault:
        time.sleep(600)
    print("what an environment prints is no instance")
    rows = Dataset.from_list(
        [{"question": f"What is {n} + {n + 3}?", "answer": answer_of(answers, n)} for n in range(count)]
    )

    def right(completion, answer):
        if fault == "raise":
            raise KeyError("no such field")
        if fault == "hang":
            time.sleep(600)
        if fault == "exit":
            os._exit(3)
        print("what a reward prints is no score")
        return 1.0 if f"\\boxed{{{answer}}}" in completion[-1]["content"] else 0.0

    def brief(completion):
        return 1.0 if len(completion[-1]["content"]) < 60 else 0.0

    rubric = vf.Rubric(funcs=[right, brief], weights=[0.75, 0.25])
    return vf.SingleTurnEnv(dataset=rows, system_prompt="Add.", rubric=rubric)
