"""A `verifiers` taskset for tests, in the interface of verifiers 0.3 and later: additions with two weighted rewards."""

from verifiers import v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=0.75)
    async def right(self, trace) -> float:
        return float(f"\\boxed{{{self.data.answer}}}" in trace.last_reply)

    @vf.reward(weight=0.25)
    async def brief(self, trace) -> float:
        if "raise" in trace.last_reply:
            raise KeyError("no such field")
        return float(len(trace.last_reply) < 60)


class SumConfig(vf.TasksetConfig):
    count: int = 40


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self):
        for n in range(self.config.count):
            data = SumData(idx=n, prompt=f"What is {n} + {n + 3}?", system_prompt="Add.", answer=str(2 * n + 3))
            yield SumTask(data, self.config.task)


__all__ = ["SumTaskset"]
