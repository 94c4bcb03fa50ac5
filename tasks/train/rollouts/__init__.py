"""Rollouts from nodes that nobody has to trust: asked for, made, checked, committed.

    job.py       what a node is asked for; the payload of jobs of the kind `rollouts`
    policy.py    the versions of a broadcast stream on a machine, one of them in an engine
    work.py      a node's side: sample, prove, sign, write one file
    uploads.py   the file of a node, read in a confined child
    claims.py    what it says, held against what was asked; needs no model
    check.py     jobs of the kind `check_rollouts`: one prefill by the version that it names
    copies.py    answers that were seen before
    rewards.py   rewards and advantages, ours
    standing.py  the ledger's entries, who is excluded, whose work counts
    accepted.py  what was committed, and may be taken back
    intake.py    all of it in order: `Intake.take` accepts an upload or raises `RolloutsRefused`

The checks of INTELLECT-2 (arXiv 2505.07291) and where they are: computation, token sampling and
termination in `check` (an end token has to be the one that its seed draws, which is more than a
probability above 0.1); fixed data sampling and value bounds in `claims` (a stated reward has to be
equal to ours, which is more than a bound); the file's format in `uploads`.
"""
