"""A single-turn environment: sums, with a reward for the value and one for the form."""

from datasets import Dataset

import verifiers as vf


def load_environment(count: int = 5) -> vf.Environment:
    rows = [{"question": f"What is {n} + {n + 1}?", "answer": str(2 * n + 1)} for n in range(count)]
    parser = vf.XMLParser(["answer"], answer_field="answer")

    def right(parser, completion, answer) -> float:
        return 1.0 if parser.parse_answer(completion) == answer else 0.0

    def brief(completion) -> float:
        return 1.0 if len(completion[-1]["content"]) < 40 else 0.0

    def length(completion) -> float:
        return float(len(completion[-1]["content"]))

    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows),
        system_prompt="Answer between <answer> and </answer>.",
        parser=parser,
        rubric=vf.Rubric(funcs=[right, brief, length], weights=[0.75, 0.25, 0.0], parser=parser),
    )
