"""The embedded engine: a transformers model on this machine's CPU.

Invariants: one model, a fixed number of threads, no gradient. A request that cannot be served
becomes a completion with a status; an exception from `generate` is a fault of the caller (two
requests with one trace id) or of its sink.
"""

import functools
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from infra.inference import loading
from infra.inference.decoding import Decoding, Row
from infra.inference.environment import environment
from infra.inference.errors import EngineClosed
from infra.inference.prefill import ids_problem, prefill
from infra.inference.prompts import ChatTokenizer, StopWatcher
from infra.inference.protocol import (
    Completion,
    HiddenSink,
    Item,
    Message,
    Request,
    SamplingParams,
    Status,
)
from infra.inference.stages import ModelStages
from toploc.sampling import SamplingRule


class TransformersEngine:
    """A causal language model from a directory of safetensors, tokenizer and chat template."""

    name = "transformers"

    def __init__(
        self,
        model_dir: Path | str,
        model_id: str,
        revision: str,
        dtype: str = "float32",
        threads: int = 1,
        attention: str = loading.ATTENTIONS[0],
    ):
        # One thread per engine process: small products wait at each barrier on a busy machine.
        torch.set_num_threads(threads)
        self.model_id = model_id
        self.revision = revision
        self._tokenizer = ChatTokenizer(Path(model_dir), model_id)
        self._model: loading.CausalModel | None = loading.load(
            Path(model_dir), model_id, dtype, attention
        )
        self.environment = environment(self.name, dtype, attention)
        self.eos_ids = self._model.eos_ids | self._tokenizer.eos_ids

    @property
    def context_length(self) -> int:
        """Tokens of prompt and output together."""
        return self._loaded().context_length

    def render(self, messages: list[Message]) -> tuple[list[int], str]:
        """Prompt ids with the generation prompt, and the text that the template opened."""
        return self._tokenizer.render(messages)

    def ended(self, output_ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the last token ends the output: an end token, or the end of a stop string."""
        if not output_ids:
            return False
        return output_ids[-1] in self.eos_ids or StopWatcher(self._tokenizer, stop).hit(output_ids)

    @torch.inference_mode()
    def generate(
        self,
        batch: Sequence[Request],
        params: SamplingParams,
        on_hidden: HiddenSink | None = None,
    ) -> list[Completion]:
        """Decode a batch; completions in the order of the requests."""
        started = time.perf_counter()
        model = self._loaded()
        if len({request.trace_id for request in batch}) != len(batch):
            raise ValueError("two requests of a batch have the same trace_id")
        stops = StopWatcher(self._tokenizer, params.stop)
        # Requests share prompts.
        opened = functools.cache(self._tokenizer.opened_prefix)
        done: dict[str, Completion] = {}

        def ended(row: Row) -> bool:
            return row.output_ids[-1] in self.eos_ids or stops.hit(row.output_ids)

        def finished(row: Row) -> None:
            seconds = time.perf_counter() - started
            prefix = opened(row.request.prompt_ids)
            done[row.request.trace_id] = self._completion(row, prefix, stops, seconds)

        rows: list[Row] = []
        for request in batch:
            refused = _refusal(model, request)
            if refused:
                done[request.trace_id] = refused
            else:
                left = model.context_length - len(request.prompt_ids)
                rows.append(Row(request, limit=min(params.max_tokens, left)))
        if rows:
            rule = SamplingRule(
                temperature=params.temperature,
                top_p=params.top_p,
                top_k=params.top_k,
                min_p=params.min_p,
            )
            Decoding(model, rows, rule, ended, finished, on_hidden).run()
        return [done[request.trace_id] for request in batch]

    @torch.inference_mode()
    def prefill(
        self, items: Sequence[Item], step: int | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """Hidden states and logits of given outputs; BadItem names an item that cannot run.

        With `step` the texts are read that many tokens at a time over a cache: chunked prefill,
        and with 1 the products of decoding.
        """
        return prefill(self._loaded(), items, step)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32 of last hidden states [rows, hidden]."""
        return self._loaded().logits(hidden)

    def stages(self, count: int) -> ModelStages:
        """The model cut into stages, which share its weights."""
        return ModelStages(self._loaded(), count)

    def replace_weights(self, model_dir: Path, revision: str) -> None:
        """Take the weights of a directory with the same model's, in place of the present ones."""
        loading.replace_weights(self._loaded(), model_dir)
        self.revision = revision

    def close(self) -> None:
        """Free the weights."""
        self._model = None

    def _loaded(self) -> loading.CausalModel:
        if self._model is None:
            raise EngineClosed(self.model_id)
        return self._model

    def _completion(self, row: Row, opened: str, stops: StopWatcher, seconds: float) -> Completion:
        ids = row.output_ids
        shown = ids[:-1] if ids and ids[-1] in self.eos_ids else ids
        return Completion(
            trace_id=row.request.trace_id,
            output_ids=ids,
            logprobs=row.logprobs,
            text=opened + stops.cut(self._tokenizer.decode(shown)),
            status="engine_error" if row.error else "ok",
            finish_reason=row.finish_reason or "error",
            error=row.error,
            seconds=seconds,
        )


def _refusal(model: loading.CausalModel, request: Request) -> Completion | None:
    """The completion of a request that cannot start, or None."""
    status: Status = "engine_error"
    problem = ids_problem(model, request.prompt_ids)
    if problem is None and len(request.prompt_ids) + 1 > model.context_length:
        status = "prompt_too_long"
        problem = (
            f"the prompt has {len(request.prompt_ids)} tokens and leaves no room for an output "
            f"token in a context of {model.context_length}"
        )
    if problem is None:
        return None
    return Completion(request.trace_id, [], [], "", status, "error", problem, 0.0)
