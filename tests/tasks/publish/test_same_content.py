"""The bytes depend on content alone."""

from tasks.publish import latest


def files_of(run, published):
    prefix = f"{published.path}/"
    return {
        path.removeprefix(prefix): run.store.read_bytes(path)
        for path in run.store.list(published.path)
    }


def build(run):
    run.collect().stages("annotators", run.ANNOTATORS)
    return run.stages("teacher", (run.TEACHER,), samples=1, shard_size=5)


def test_two_runs_with_equal_content_are_byte_identical(new_run, rate_and_publish):
    one = build(new_run("one", "memory://same/a"))
    two = build(new_run("two", "memory://same/b"))
    first, second = rate_and_publish(one), rate_and_publish(two)
    assert first.version == second.version
    assert files_of(one, first) == files_of(two, second)


def test_publishing_again_ends_at_the_same_version(rated_run, rate_and_publish):
    first = rate_and_publish(rated_run)
    files = files_of(rated_run, first)
    assert rate_and_publish(rated_run) == first
    assert files_of(rated_run, first) == files
    assert latest(rated_run.store, "made")["sequence"] == 1


def test_other_content_is_another_version_with_a_parent(new_run, rate_and_publish):
    one = new_run("one").collect().stages("annotators", ("tracemill/nano-s",))
    first = rate_and_publish(one)
    two = build(new_run("two"))
    second = rate_and_publish(two)
    assert first.version != second.version
    manifest = two.store.read_json(f"{second.path}/manifest.json")
    assert manifest["parent_version"] == first.version


def test_a_trace_that_both_phases_plan_counts_once(new_run, rate_and_publish):
    run = new_run().collect()
    # the teacher is an annotator too and samples the same tasks under the same settings
    for phase in ("annotators", "teacher"):
        run.plan(phase, (run.TEACHER,), samples=2, shard_size=24)
        run.generate(phase).validate(phase).verify(phase)
    published = rate_and_publish(run)
    assert published.rows["full"] == run.accepted("teacher") == published.rows["sft_unverified"]
