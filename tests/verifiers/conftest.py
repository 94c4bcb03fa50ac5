import pytest

from verifiers import sandbox


@pytest.fixture(scope="session")
def sandbox_here() -> None:
    works, why = sandbox.availability()
    if not works:
        pytest.skip(why)
