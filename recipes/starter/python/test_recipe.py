"""python3 -m unittest"""

import json
import unittest

from recipe import price, reward


class Recipe(unittest.TestCase):
    def test_the_tool_knows_every_problem(self):
        for line in open("problems.jsonl"):
            problem, answer = json.loads(line).values()
            count, item = problem.removeprefix("What do ").removesuffix(" cost?").split()
            self.assertEqual(price(item.removesuffix("s"), int(count)), answer)

    def test_an_unknown_item_is_an_error_that_the_model_reads(self):
        with self.assertRaisesRegex(ValueError, "no item is named 'car'"):
            price("car", 2)

    def test_only_the_truth_is_rewarded(self):
        task = {"truth": "51"}
        self.assertEqual([reward(answer, task) for answer in ("51", "\\boxed{51}")], [1, 1])
        self.assertEqual(reward("15", task), {"score": 0, "why": "15 instead of 51"})


if __name__ == "__main__":
    unittest.main()
