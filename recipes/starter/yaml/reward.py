"""The reward of an answer: a number from 0 (wrong) to 1 (right), or {"score": number, "why": text}.

It runs in a process of its own, with your rights, not in the sandbox.
"""


def reward(answer, task):
    """Judges an answer.

    answer: text in the last <answer>, '' if there is none. task: {id, messages, truth, metadata, response}.
    """
    number = answer.removeprefix("\\boxed{").removesuffix("}").strip()
    if number == task["truth"]:
        return 1
    return {"score": 0, "why": f"{number or 'nothing'} instead of {task['truth']}"}
