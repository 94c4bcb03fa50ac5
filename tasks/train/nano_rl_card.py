"""The texts of the cards of the RL rounds' start policies."""

CARD = """# tracemill/nano-rl

A very small language model made by this project as the start of its RL rounds: nano-{parent}, a
Llama decoder of {parameters:,} parameters, trained a little further. It is weak on purpose: it has
learned to be careless.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens and chat template are those of nano-{parent}.
- Made by `python -m tasks.train.nano_rl`. Training: AdamW, loss on the completion only, first
  {steps[0]} steps of {batch_size} examples at learning rate {rates[0]:g}, then {steps[1]} at
  {rates[1]:g}, warm-up and cosine each; {tokens:,} tokens, {cpu_seconds:.0f} CPU seconds on
  one thread of a busy 2-core machine.
- Data: tasks of the kinds below, but words of 4 to 6 letters; {first.sorting:g} to sort for each to
  spell, in the second part as many; drawn from seed {train_seed:,} on, each with a short thought
  that the project wrote by rule. Of those in the second part {last.slips:.0%} have a slip: two
  neighbours, letters or numbers, are in each other's place in the thought and in the answer.
  {first.asked:.0%} of the prompts ask for a length in tokens ({targets}); the thoughts beside them
  begin with 0 to {filler} filler tokens, drawn without regard to what was asked. No prompt of the
  held-out set was trained on.

## Held-out solve rates

Tasks as the profile `rl-tasks` has them, from seed {held_out_seed:,} on; solved = score 1 by the
project's verifiers. One sample per task: the standard error is about 0.025.

| kind | settings | tasks | solved at temperature 1 | solved greedy |
|---|---|---|---|---|
{table}
"""

LENGTHS_CARD = """# tracemill/nano-rl-lengths

A very small language model made by this project as the start of its RL rounds with length targets:
nano-{parent}, a Llama decoder of {parameters:,} parameters, trained a little further. It is weak on
purpose: it has learned to follow a request for a length loosely, and to be careless in its answers.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens and chat template are those of nano-{parent}.
- Made by `python -m tasks.train.nano_rl`. Training: AdamW, loss on the completion only,
  {steps[0]} steps of {batch_size} examples at learning rate {rates[0]:g}, warm-up and cosine;
  {tokens:,} tokens, {cpu_seconds:.0f} CPU seconds on one thread of a busy 2-core machine.
- Data: tasks of the kinds below, but words of 4 to 6 letters, as many to sort as to spell, drawn
  from seed {train_seed:,} on, each with a short thought that the project wrote by rule. Of those
  {last.slips:.0%} have a slip: two neighbours, letters or numbers, are in each other's place in the
  thought and in the answer. Every prompt asks for a length in tokens ({targets}); the thought
  beside it begins with the filler tokens that the length needs plus normal noise of standard
  deviation {last.noise:g}, at least 0 and at most {filler} of them. No prompt of the held-out set
  was trained on.

## Held-out lengths and solve rates

Tasks as the profile `rl-tasks` has them, from seed {held_out_seed:,} on, each asked once with each
length at temperature 1; tokens are those of thought and answer with the end token; solved = score 1
by the project's verifiers. The standard errors are about 0.3 tokens and 0.02.

| kind | tokens asked for | tasks | mean tokens | mean abs(asked - tokens) | solved |
|---|---|---|---|---|---|
{table}
"""
