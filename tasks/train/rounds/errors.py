"""Errors of the RL rounds; `retryable` says whether starting again with the same id may help."""


class RoundsError(Exception):
    """Base of everything that the rounds raise on purpose."""

    retryable = False


class NoTasks(RoundsError):
    """The split has nothing to train on, or to hold out."""


class BadSplit(RoundsError):
    """The dataset is no published rl split."""


class TrainerFailed(RoundsError):
    """The trainer process ended again and again without finishing its step."""

    retryable = True

    def __init__(self, step: int, tries: int, last_words: str) -> None:
        self.step = step
        super().__init__(
            f"the trainer ended {tries} times without finishing step {step}; its last words:\n"
            f"{last_words}\nMend what they name and start the run again with the same id"
        )


class StepStuck(RoundsError):
    """A step's batch cannot be filled."""

    def __init__(self, step: int, jobs: int, groups: int, wanted: int) -> None:
        self.step = step
        super().__init__(
            f"step {step}: {jobs} jobs gave {groups} groups with a spread of rewards, wanted are "
            f"{wanted}. The policy solves all or none of the tasks. To train on, start a run under "
            "another id with other tasks, a wider tasks.difficulty or a lower "
            "rounds.groups_per_step"
        )


class JobGivenUp(RoundsError):
    """A job was lost, or its check crashed, too often."""

    retryable = True

    def __init__(self, job_id: str, tries: int, why: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} failed {tries} times, last: {why}. Look at the logs of the nodes; "
            "start the run again with the same id"
        )


class NoRoom(RoundsError):
    """A sample might be too long to be made, or to be trained on."""

    def __init__(self, task_id: str, prompt: int, answer: int, limit: str, room: int) -> None:
        self.task_id = task_id
        super().__init__(
            f"task {task_id}: its prompt has {prompt} tokens and an answer up to {answer}; "
            f"{limit} is {room}. Raise that, lower sampling.max_tokens, or take other tasks; "
            "a run with another config needs another id"
        )


class NotWanted(RoundsError):
    """An upload came when its job was done, or its step had its batch."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id}: nobody waits for it any more; what was made is not read")


class NoFileSystem(RoundsError):
    """The run lies in an object store."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"storage.root is {root}; the trainer works on a file system that it shares with the "
            "flow: give a directory"
        )
