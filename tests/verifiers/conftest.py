import pytest

from verifiers import host, pool, sandbox


@pytest.fixture(scope="session")
def sandbox_here() -> None:
    works, why = sandbox.availability()
    if not works:
        pytest.skip(why)


@pytest.fixture
def no_warm_workers():
    """Workers of earlier tests, and the template that they were forked from, are gone.

    They keep the environment that they were started in.
    """
    with pool._lock:
        idle = list(pool._idle)
        pool._idle.clear()
    for slot in idle:
        slot.stop()
    if host._template is not None:
        host._template.close()
