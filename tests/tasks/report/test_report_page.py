"""The page: self-contained, and hostile text stays text."""

import re
from html.parser import HTMLParser

import pytest

from tasks.report import funnel, write_report
from tasks.report.details import BINS, bin_of, read_details
from tasks.report.html import segments, visible

HOSTILE = (
    "</pre><script>alert(1)</script><img src=x onerror=alert(2)> {{7*7}} \u202eevil\u200b {draw}"
)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def page_of(run):
    path = write_report(run.store, run.layout, funnel(run.store, run.layout))
    return run.store.read_bytes(path).decode()


@pytest.fixture
def hostile_page(new_run, rate_and_publish):
    run = new_run().collect(text="Prompt {n} <b>bold</b> <svg onload=x>")
    run.store.write_bytes(run.layout.run_toml, b'title = "<script>x</script>"\n')
    for phase, models in (("annotators", run.ANNOTATORS), ("teacher", (run.TEACHER,))):
        run.plan(phase, models).generate(phase, completion=HOSTILE)
        run.validate(phase).verify(phase)
    rate_and_publish(run)
    return page_of(run)


def test_hostile_text_stays_text(hostile_page):
    tags = Tags()
    tags.feed(hostile_page)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "img", "iframe", "b", "link", "object"} - {"b"}
    assert not [attrs for _, attrs in tags.seen for name in attrs if name.startswith("on")]
    assert "&lt;script&gt;alert(1)" in hostile_page
    assert "{{7*7}}" in hostile_page
    assert "\u202e" not in hostile_page and "[U+202E]evil[U+200B]" in hostile_page
    assert "<b>bold</b>" not in hostile_page


def test_nothing_is_loaded_from_elsewhere(hostile_page):
    tags = Tags()
    tags.feed(hostile_page)
    for tag, attrs in tags.seen:
        for name in ("src", "href", "style"):
            value = attrs.get(name)
            assert value is None or (tag == "a" and value.startswith("../")), (tag, value)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', hostile_page)
    assert policy and policy[1].startswith("default-src 'none'; style-src 'sha256-")


def test_page_shows_both_right_and_wrong(finished):
    run, _ = finished
    details = read_details(run.store, run.layout)
    assert {sample.outcome for sample in details.samples} == {"right", "wrong"}
    assert len({sample.task_type for sample in details.samples}) == 3
    assert {chart.model for chart in details.histograms} == set(run.ANNOTATORS)
    for chart in details.histograms:
        assert sum(count for _, count in chart.bins) + chart.unknown == len(run.tasks)
    assert {figure.name for figure in details.figures} == {"exp_mismatches", "proofs"}
    page = page_of(run)
    for word in ("rejected:proof_missing", "sft_verified", "Difficulty", "exp_mismatches"):
        assert word in page


def test_page_of_a_run_that_is_going(new_run):
    run = new_run().collect().plan("annotators", ("tracemill/nano-s",))
    run.generate("annotators", skip=1)
    page = page_of(run)
    assert "not complete" in page and "planned and not committed" in page


@pytest.mark.parametrize(
    ("rate", "label"),
    [(0, "0"), (0.01, "to 25%"), (0.25, "to 25%"), (0.5, "to 50%"), (0.99, "to 99%"), (1, "100%")],
)
def test_bins(rate, label):
    assert BINS[bin_of(rate)] == label


def test_segments_fill_the_bar():
    parts = segments([("a", 1), ("b", 0), ("c", 3)], 4)
    assert [(part.kind, part.x, part.width) for part in parts] == [("a", 0, 25), ("c", 25, 75)]
    assert segments([("a", 1)], 0) == ()


def test_visible_keeps_lines_and_other_scripts():
    assert visible("a\n\tß 日本 العربية") == "a\n\tß 日本 العربية"
    assert visible("\x1b[31m") == "[U+001B][31m"
